import { Clock, Duration, Effect } from "effect"
import { realClock } from "#layers/budgets/Holder.ts"
import type { LeaseItem, LedgerStatements } from "#layers/budgets/LedgerStatements.ts"
import type { Share } from "#layers/budgets/Share.ts"
import type { Shares } from "#layers/budgets/Shares.ts"

const tick = Duration.seconds(1)
const sweepEvery = Duration.minutes(5)
const mostSweeps = 20
/** Accounts that nobody uses are forgotten after a minute, or as soon as they are idle when there are very many. */
const forgetMs = 60_000
const mostShares = 100_000
const batchSize = 64

interface Tidy {
  readonly shares: Shares
  readonly statements: LedgerStatements
  readonly enqueue: (share: Share) => void
  readonly idleMs: number
  readonly clock: Clock.Clock
}

/** One look at every share: returns what is idle or left over from an ended window, forgets what is empty. */
const visit = ({ clock, enqueue, idleMs, shares }: Tidy): void => {
  const now = clock.currentTimeMillisUnsafe()
  const monotonic = performance.now()
  const crowded = shares.current.size > mostShares
  for (const [name, share] of shares.retired) {
    if (share.empty) shares.retired.delete(name)
    else if (share.free > 0 || share.unsure || share.taken === 0) {
      share.giveBack = true
      enqueue(share)
    }
  }
  for (const share of Array.from(shares.current.values())) {
    for (let at: Share | undefined = share; at !== undefined;) {
      const next: Share | undefined = at.next
      visitOne(at)
      at = next
    }
  }

  function visitOne(share: Share): void {
    if (share.contendedUntil !== 0 && monotonic > share.contendedUntil) share.contendedUntil = 0
    const over = share.start !== -1 && now >= share.end
    const idle = now - share.usedAt >= idleMs
    if (over && share.budget) return shares.retire(share)
    if (!idle || share.busy || share.queued) return
    const unused = share.budget ? share.free > 0 || share.unsure : !over && share.free !== 0
    if (unused && monotonic >= share.failedUntil) {
      share.appetite = 0
      share.lowWater = 0
      share.giveBack = true
      enqueue(share)
      return
    }
    if (now - share.usedAt < forgetMs && !crowded) return
    const forgettable = share.budget ? share.empty : share.places.length === 0 && (over || share.free === 0)
    if (forgettable) shares.unlink(share)
  }
}

/** Fibers that return, forget and sweep until the scope closes. */
export const keepTidy = Effect.fnUntraced(function* (tidy: Tidy) {
  yield* Effect.sleep(tick).pipe(Effect.andThen(Effect.sync(() => visit(tidy))), Effect.forever, Effect.forkScoped)
  const sweep = Effect.gen(function* () {
    for (let n = 0; n < mostSweeps; n++) {
      if (!(yield* tidy.statements.sweep(tidy.clock.currentTimeMillisUnsafe()))) return
    }
  })
  yield* Effect.sleep(sweepEvery).pipe(
    Effect.andThen(Effect.catch(sweep, (error) => Effect.logWarning("Budgets: old windows are kept for now", error))),
    Effect.forever,
    Effect.forkScoped
  )
})

/** The end: returns what is free of rates and cuts the leases down to what running calls occupy. Bounded in time. */
export const leaveAll = (shares: Shares, statements: LedgerStatements, clock: Clock.Clock): Effect.Effect<void> =>
  Effect.gen(function* () {
    const now = clock.currentTimeMillisUnsafe()
    const all = Array.from(shares.all())
    const rates = all.filter((share) => !share.budget && share.free !== 0 && now < share.end)
    for (let at = 0; at < rates.length; at += batchSize) {
      yield* statements.lease(rates.slice(at, at + batchSize).map(returned), now)
    }
    const kept = all.filter((share) => share.budget && share.taken > 0)
    yield* statements.keep(kept.map((share) => ({ a: share.account, s: share.start, k: share.taken })))
    yield* statements.leave
  }).pipe(
    Effect.timeoutOrElse({
      duration: "5 seconds",
      orElse: () => Effect.logWarning("Budgets: shares were not returned")
    }),
    Effect.catchCause((cause) => Effect.logWarning("Budgets: shares were not returned and will expire", cause)),
    Effect.provideService(Clock.Clock, realClock)
  )

const returned = (share: Share): LeaseItem => ({
  a: share.account,
  budget: false,
  s: share.start,
  e: share.end,
  l: String(share.limit),
  give: share.free,
  held: share.start,
  closing: false,
  low: 0,
  need: 0,
  extra: 0,
  initial: null
})
