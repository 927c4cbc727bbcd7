import type { Limit, LimitKind, LimitOwner, Window } from "#domain/limits.ts"

/**
 * Shares are plain numbers, exact below this: a process never leases more of one account at a time (about a million
 * dollars), so that the hot path needs no bigint.
 */
export const MOST_UNITS = 2 ** 50

/** Somebody who waits for answers about the accounts that its call lacks. */
export interface Waiter {
  /** Accounts that have not answered yet. */
  outstanding: number
  readonly answered: () => void
}

/** A waiter's place at one share. `need`: the units that the call wants to find free; 0 only waits for an answer. */
export interface Place {
  readonly need: number
  readonly waiter: Waiter
}

/**
 * What this process holds of one account in one window. Owned by the ledger that made it; free units are
 * `amount - taken`, which is negative when an upstream reported more than was reserved.
 *
 * Budgets: `amount` is exactly this process's lease in the database, `taken` what running calls reserved plus what
 * settled calls cost until it is posted. Rates: `amount` was handed out and counts as used in the database, `taken` is
 * consumed or reserved.
 */
export class Share {
  readonly account: string
  readonly owner: LimitOwner
  readonly kind: LimitKind
  readonly budget: boolean
  readonly window: Window
  /** The newest limit that a caller came with. */
  source: Limit
  limit: bigint
  /** A limit of 0 refuses everything. */
  closed: boolean
  /** Unix milliseconds. A minute's window has none (-1, and an end in the past) until the database has said it. */
  start: number
  end: number
  amount = 0
  taken = 0
  /** The part of `taken` that settled calls cost. */
  unposted = 0
  /** What the last `post` could not take off the lease, because calls cost more than it held. */
  shortfall = 0
  /** Spent (or handed out) by everybody, as the database last said; undefined until it has. */
  counted: bigint | undefined = undefined
  /** Below this many free units more is asked for in the background. */
  lowWater = 0
  /** How much more than needed is asked for; grows while refills come quickly. */
  appetite = 0
  refilledAt = 0
  usedAt: number
  /** Until then a call that lacks `refusedNeed` units or more is refused without asking again. */
  refusedUntil = 0
  refusedNeed = 0
  recalledAt = Number.NEGATIVE_INFINITY
  /** Until then other processes are short of this account: nothing is hoarded, what comes free is returned at once. */
  contendedUntil = 0
  failedUntil = 0
  queued = false
  busy = false
  again = false
  giveBack = false
  /** A statement about it failed, so that the database may hold more for this process than `amount`. */
  unsure = false
  /** What a lowered limit took away and the database has not heard of yet. */
  owed = 0
  places: Array<Place> = []
  /** Other processes are being asked for what they hold of it. */
  recalling = false
  /** Set while it first returns what it holds itself: who waits for that. */
  yielding: Array<() => void> | undefined = undefined
  /** The same account with another window, when two policies differ. */
  next: Share | undefined = undefined

  constructor(limit: Limit, start: number, end: number, now: number) {
    this.account = limit.account
    this.owner = limit.owner
    this.kind = limit.kind
    this.budget = limit.kind === "budget"
    this.window = limit.window
    this.source = limit
    this.limit = limit.limit
    this.closed = limit.limit <= 0n
    this.start = start
    this.end = end
    this.usedAt = now
  }

  get free(): number {
    return this.amount - this.taken
  }

  /** Nothing is held of it and nobody is busy with it. */
  get empty(): boolean {
    return (
      this.amount === 0 &&
      this.taken === 0 &&
      this.owed === 0 &&
      !this.unsure &&
      !this.queued &&
      !this.busy &&
      this.places.length === 0
    )
  }

  /** Another limit for the same account. A raised one is used by the next lease, a lowered one takes the free units. */
  adopt(limit: Limit): void {
    if (limit.limit < this.limit && this.free > 0) {
      this.owed += this.free
      this.amount = this.taken
      this.giveBack = true
    }
    this.source = limit
    this.limit = limit.limit
    this.closed = limit.limit <= 0n
    this.refusedUntil = 0
    this.lowWater = 0
  }
}

export const sameWindow = (a: Window, b: Window): boolean =>
  a === b ||
  (a._tag === b._tag && (a._tag !== "Calendar" || b._tag !== "Calendar" || (a.unit === b.unit && a.count === b.count)))
