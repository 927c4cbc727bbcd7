import { type Limit, Window, windowAt } from "#domain/limits.ts"
import type { Charge, Consumption, Demand, Reservation } from "#services/budgets/BudgetLedger.ts"
import { MOST_UNITS, sameWindow, Share } from "#layers/budgets/Share.ts"

const noCharges: ReadonlyArray<Charge> = []

/** The reservation of a call that no limit binds. */
const unbound: Reservation = { settle: () => noCharges, release: () => undefined }

/** What the shares need of whoever asks the database for more. */
export interface ShareKeeper {
  /** Has the share looked at soon: it is short, or has something to give back. */
  readonly enqueue: (share: Share) => void
  /** Whether this process's leases of budgets hold, by its own clocks. */
  readonly leasesHold: (now: number) => boolean
}

const unitsOf = (limit: Limit, nanos: number, tokens: number): number =>
  limit.kind === "budget" ? nanos : limit.kind === "tokens" ? tokens : 1

/** A minute's window of a rate begins when the database says so; a budget's is the UTC minute. */
export const windowOf = (limit: Limit, now: number): { readonly start: number; readonly end: number } =>
  limit.window._tag !== "Minute"
    ? windowAt(limit.window, now)
    : limit.kind === "budget"
      ? windowAt(Window.Calendar({ unit: "m", count: 1 }), now)
      : { start: -1, end: -1 }

/**
 * Everything this process holds: the current share of each account, and budget shares of ended windows until their
 * last call is posted.
 */
export class Shares {
  readonly current = new Map<string, Share>()
  readonly retired = new Map<string, Share>()
  readonly #keeper: ShareKeeper

  constructor(keeper: ShareKeeper) {
    this.#keeper = keeper
  }

  /** The share of a limit, whatever its window's state. */
  find(limit: Limit): Share | undefined {
    let share = this.current.get(limit.account)
    while (share !== undefined && !sameWindow(share.window, limit.window)) share = share.next
    return share
  }

  /** The share of a limit in the window that holds `now`, with this very limit. */
  open(limit: Limit, now: number): Share {
    let share = this.find(limit)
    if (share !== undefined && now >= share.end && share.start !== -1) {
      this.retire(share)
      share = undefined
    }
    if (share === undefined) {
      const window = windowOf(limit, now)
      share = new Share(limit, window.start, window.end, now)
      share.next = this.current.get(limit.account)
      this.current.set(limit.account, share)
    } else if (share.limit !== limit.limit) {
      share.adopt(limit)
      if (share.giveBack) this.#keeper.enqueue(share)
    }
    return share
  }

  /** Takes a share out of use. A budget's is kept until everything on it is posted and returned. */
  retire(share: Share): void {
    this.unlink(share)
    if (!share.budget || share.empty) return
    this.retired.set(retiredKey(share.account, share.start), share)
    share.giveBack = true
    this.#keeper.enqueue(share)
  }

  unlink(share: Share): void {
    const head = this.current.get(share.account)
    if (head === share) {
      if (share.next === undefined) this.current.delete(share.account)
      else this.current.set(share.account, share.next)
    } else {
      for (let at = head; at !== undefined; at = at.next) if (at.next === share) at.next = share.next
    }
    share.next = undefined
  }

  /** Puts the share of a window that the database has begun in the place of one whose window it has ended. */
  replace(share: Share, fresh: Share): void {
    this.unlink(share)
    share.end = 0
    share.lowWater = 0
    fresh.next = this.current.get(fresh.account)
    this.current.set(fresh.account, fresh)
  }

  /** The budget share that a charge occupies, if this process holds it. */
  charged(account: string, start: number): Share | undefined {
    for (let share = this.current.get(account); share !== undefined; share = share.next) {
      if (share.start === start) return share
    }
    return this.retired.get(retiredKey(account, start))
  }

  *all(): Generator<Share> {
    for (const head of this.current.values()) {
      for (let share: Share | undefined = head; share !== undefined;) {
        const next: Share | undefined = share.next
        yield share
        share = next
      }
    }
    yield* this.retired.values()
  }

  /** Reserves on every limit or on none; undefined when a share does not suffice. Never waits. */
  hold(limits: ReadonlyArray<Limit>, demand: Demand, now: number): Reservation | undefined {
    const count = limits.length
    if (count === 0) return unbound
    const nanos = Number(demand.nanos)
    const tokens = demand.tokens
    const shares: Array<Share> = []
    for (let i = 0; i < count; i++) {
      const limit = limits[i] as Limit
      const share = this.find(limit)
      const units = unitsOf(limit, nanos, tokens)
      // Written so that a NaN does not pass.
      if (share === undefined || !this.#suffices(share, limit, units, now)) {
        for (let j = 0; j < i; j++) (shares[j] as Share).taken -= unitsOf(limits[j] as Limit, nanos, tokens)
        return undefined
      }
      share.taken += units
      share.usedAt = now
      if (share.amount - share.taken < share.lowWater && !share.queued && !share.busy) this.#keeper.enqueue(share)
      shares.push(share)
    }
    return held(shares, nanos, tokens, this.#keeper)
  }

  #suffices(share: Share, limit: Limit, units: number, now: number): boolean {
    return (
      (now < share.end || (units === 0 && !share.budget)) &&
      !share.closed &&
      share.limit === limit.limit &&
      share.amount - share.taken >= units &&
      units >= 0 &&
      (!share.budget || units === 0 || this.#keeper.leasesHold(now))
    )
  }

  /** The units that a demand takes of a limit; undefined when no share could ever hold them. */
  units(limit: Limit, demand: Demand): number | undefined {
    const units = unitsOf(limit, Number(demand.nanos), demand.tokens)
    return units >= 0 && units <= MOST_UNITS ? units : undefined
  }
}

export const retiredKey = (account: string, start: number): string => `${start} ${account}`

/** Functions, not methods: they go into finalizers by reference. */
const held = (shares: ReadonlyArray<Share>, nanos: number, tokens: number, keeper: ShareKeeper): Reservation => {
  let open = true
  return {
    settle: (actual: Consumption): ReadonlyArray<Charge> => {
      if (!open) return noCharges
      open = false
      const cost = Number(actual.nanos)
      const usedTokens = actual.tokens >= 0 ? actual.tokens : tokens
      let charges: Array<Charge> | undefined
      for (const share of shares) {
        if (share.budget) {
          share.taken += cost - nanos
          share.unposted += cost
          if (cost !== 0) {
            charges ??= []
            charges.push({ account: share.account, windowStart: share.start, nanos: actual.nanos })
          }
        } else if (share.kind === "tokens") share.taken += usedTokens - tokens
        if (share.contendedUntil !== 0) keeper.enqueue(share)
      }
      return charges ?? noCharges
    },
    release: () => {
      if (!open) return
      open = false
      for (const share of shares) {
        if (share.budget) share.taken -= nanos
        else if (share.kind === "tokens") share.taken -= tokens
        if (share.contendedUntil !== 0) keeper.enqueue(share)
      }
    }
  }
}
