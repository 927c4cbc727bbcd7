import { Connection } from "./connection.ts"
import { Samples, type Spread } from "./stats.ts"

/** One task of the load generator: what to send where, and how. */
export interface Job {
  readonly port: number
  /** The whole request, head and body. */
  readonly request: string
  readonly connections: number
  /** At most so long. */
  readonly seconds: number
  /** At most so many calls. */
  readonly calls?: number
  /**
   * Calls per second, started by the clock whether or not earlier ones have ended (open loop); without it every
   * connection starts its next call when the last has ended (closed loop).
   */
  readonly rate?: number
}

/** What a job saw. Milliseconds; in an open loop from the moment the call was due, not from when it could be sent. */
export interface Outcome {
  readonly calls: number
  readonly errors: number
  readonly seconds: number
  readonly perSecond: number
  readonly latency: Spread
  readonly firstByte: Spread
}

const keptSamples = 2_000_000

class Run {
  readonly #job: Job
  readonly #request: Buffer
  readonly #latency: Samples
  readonly #firstByte: Samples
  readonly #began = performance.now()
  #calls = 0
  #errors = 0

  constructor(job: Job) {
    this.#job = job
    this.#request = Buffer.from(job.request)
    const bound = Math.min(keptSamples, job.calls ?? Math.ceil(job.seconds * (job.rate ?? 60_000)))
    this.#latency = new Samples(bound)
    this.#firstByte = new Samples(bound)
  }

  #send(connection: Connection, due: number, then: (connection: Connection) => void): void {
    connection.send(this.#request, {
      first: () => this.#firstByte.add(performance.now() - due),
      done: (ok) => {
        if (ok) {
          this.#calls += 1
          this.#latency.add(performance.now() - due)
        } else this.#errors += 1
        then(connection)
      }
    })
  }

  async closed(): Promise<void> {
    const end = this.#began + this.#job.seconds * 1_000
    const most = this.#job.calls ?? Number.POSITIVE_INFINITY
    let started = 0
    const all = Array.from({ length: this.#job.connections }, () => {
      const { promise, resolve } = Promise.withResolvers<void>()
      const next = (connection: Connection) => {
        const now = performance.now()
        // a target that refuses everything must not be hammered until the time is up
        if (now >= end || started >= most || this.#errors > 1_000) {
          connection.destroy()
          return resolve()
        }
        started += 1
        this.#send(connection, now, next)
      }
      next(new Connection(this.#job.port))
      return promise
    })
    await Promise.all(all)
  }

  async open(rate: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    const total = Math.min(this.#job.calls ?? Number.POSITIVE_INFINITY, Math.floor(this.#job.seconds * rate))
    const deadline = this.#began + (this.#job.seconds + 10) * 1_000
    const idle = Array.from({ length: this.#job.connections }, () => new Connection(this.#job.port))
    const waiting: Array<number> = []
    const cell = new Int32Array(new SharedArrayBuffer(4))
    let started = 0
    let head = 0
    const free = (connection: Connection) => {
      const due = waiting[head]
      if (due === undefined) return void idle.push(connection)
      head += 1
      this.#send(connection, due, free)
    }
    const step = () => {
      const now = performance.now()
      let due = this.#began + (started * 1_000) / rate
      while (due <= now && started < total) {
        started += 1
        const connection = idle.pop()
        if (connection === undefined) waiting.push(due)
        else this.#send(connection, due, free)
        due = this.#began + (started * 1_000) / rate
      }
      if (this.#calls + this.#errors >= total || now > deadline) {
        for (const connection of idle) connection.destroy()
        return resolve()
      }
      // timers are exact to 1 ms only, and spinning would take the core from the stub: sleep in small slices
      const wait = Math.min(due - performance.now(), 0.1)
      if (wait > 0.01 || started >= total) Atomics.wait(cell, 0, 0, Math.max(wait, 0.02))
      setImmediate(step)
    }
    step()
    await promise
    this.#errors += total - this.#calls - this.#errors
  }

  outcome(): Outcome {
    const seconds = (performance.now() - this.#began) / 1_000
    return {
      calls: this.#calls,
      errors: this.#errors,
      seconds,
      perSecond: this.#calls / seconds,
      latency: this.#latency.spread(),
      firstByte: this.#firstByte.spread()
    }
  }
}

/** Holds streams open in a child of its own; tells how many stand. */
class Holder {
  readonly #connections: Array<Connection> = []
  #standing = 0
  #ended = 0

  async hold(port: number, request: string, count: number): Promise<void> {
    const bytes = Buffer.from(request)
    for (let index = 0; index < count; index += 1) {
      const connection = new Connection(port)
      this.#connections.push(connection)
      connection.send(bytes, { first: () => (this.#standing += 1), done: () => (this.#ended += 1) })
      // 1,000 handshakes in one turn would only test the backlog
      if (index % 20 === 19) await new Promise((resolve) => setTimeout(resolve, 10))
    }
  }

  state(): Held {
    return { standing: this.#standing - this.#ended, ended: this.#ended }
  }

  release(): void {
    for (const connection of this.#connections) connection.destroy()
    this.#connections.length = 0
  }
}

/** Streams that have begun and not ended, and those that have ended though they should not have. */
export interface Held {
  readonly standing: number
  readonly ended: number
}

/** A message to the load generator; each is answered by one message. */
export type Order =
  | { readonly kind: "run"; readonly job: Job }
  | { readonly kind: "hold"; readonly port: number; readonly request: string; readonly count: number }
  | { readonly kind: "held" }
  | { readonly kind: "release" }

const holder = new Holder()

const obey = async (order: Order): Promise<Outcome | Held> => {
  switch (order.kind) {
    case "run": {
      const run = new Run(order.job)
      await (order.job.rate === undefined ? run.closed() : run.open(order.job.rate))
      return run.outcome()
    }
    case "hold":
      await holder.hold(order.port, order.request, order.count)
      return holder.state()
    case "held":
      return holder.state()
    case "release":
      holder.release()
      return holder.state()
  }
}

if (import.meta.main) {
  process.on("disconnect", () => process.exit(0))
  process.on("message", (order: Order) => void obey(order).then((answer) => process.send?.(answer)))
  process.send?.("ready")
}
