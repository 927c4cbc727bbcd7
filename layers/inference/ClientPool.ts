import { Client } from "undici"

/** A connection of the pool, with the one call that is on it. */
export interface Slot {
  readonly client: Client
  busy: boolean
  dead: boolean
}

/** A call that takes a connection when it is its turn. */
export interface Waiting {
  readonly run: (slot: Slot) => void
}

/**
 * The connections of one origin: each an undici client that carries one call at a time. The connection used last is
 * taken first, at the cost of one `pop` however many are open (undici's own pool looks through all of them), so that
 * idle ones time out. Calls beyond `connections` wait in order.
 */
export class ClientPool {
  readonly #origin: string
  readonly #connections: number
  readonly #options: Client.Options
  readonly #slots = new Set<Slot>()
  readonly #waiting = new Set<Waiting>()
  #idle: Array<Slot> = []
  #deadIdle = 0
  /** Unix milliseconds by the caller's clock; kept by the transport. */
  lastUsed = 0

  constructor(origin: string, connections: number, options: Client.Options) {
    this.#origin = origin
    this.#connections = connections
    this.#options = options
  }

  /** Connections that carry a call now, and calls that wait for one. */
  get inUse(): number {
    return this.#slots.size - this.#idle.length + this.#deadIdle + this.#waiting.size
  }

  /** Connections that exist. */
  get size(): number {
    return this.#slots.size
  }

  /** Runs the call on a free connection, now or when there is one. */
  acquire(waiting: Waiting): void {
    for (let slot = this.#idle.pop(); slot !== undefined; slot = this.#idle.pop()) {
      if (slot.dead) {
        this.#deadIdle -= 1
        continue
      }
      slot.busy = true
      return waiting.run(slot)
    }
    if (this.#slots.size < this.#connections) return waiting.run(this.#open())
    this.#waiting.add(waiting)
  }

  /** Takes back a wait that has not come to its turn. */
  forget(waiting: Waiting): void {
    this.#waiting.delete(waiting)
  }

  /** The call on the connection has ended; `broken` connections are not used again. */
  release(slot: Slot, broken: boolean): void {
    if (!slot.busy) return
    slot.busy = false
    const [next] = this.#waiting
    if (next !== undefined) this.#waiting.delete(next)
    if (broken || slot.dead) {
      this.#drop(slot)
      if (next !== undefined) next.run(this.#open())
    } else if (next === undefined) this.#idle.push(slot)
    else {
      slot.busy = true
      next.run(slot)
    }
  }

  /** Closes every connection, in use or not. */
  destroy(): void {
    this.#waiting.clear()
    for (const slot of this.#slots) this.#drop(slot)
    this.#idle = []
    this.#deadIdle = 0
  }

  #open(): Slot {
    const client = new Client(this.#origin, this.#options)
    const slot: Slot = { client, busy: true, dead: false }
    client.on("disconnect", () => this.#disconnected(slot))
    this.#slots.add(slot)
    return slot
  }

  #disconnected(slot: Slot): void {
    if (slot.dead) return
    slot.dead = true
    if (slot.busy) return
    this.#drop(slot)
    this.#deadIdle += 1
    if (this.#deadIdle > 32 && this.#deadIdle * 2 > this.#idle.length) {
      this.#idle = this.#idle.filter((idle) => !idle.dead)
      this.#deadIdle = 0
    }
  }

  #drop(slot: Slot): void {
    slot.dead = true
    this.#slots.delete(slot)
    if (!slot.client.destroyed) void slot.client.destroy().catch(() => undefined)
  }
}
