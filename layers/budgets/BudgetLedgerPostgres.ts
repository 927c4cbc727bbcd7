import { randomUUID } from "node:crypto"
import { Clock, Context, Duration, Effect, Layer, Queue } from "effect"
import type { SqlClient } from "effect/sql"
import type { SqlError } from "effect/sql/SqlError"
import { databaseUnavailable, type RateLimited, Unavailable } from "#domain/errors.ts"
import type { Limit } from "#domain/limits.ts"
import * as Holder from "#layers/budgets/Holder.ts"
import { keepTidy, leaveAll } from "#layers/budgets/housekeeping.ts"
import * as Leasing from "#layers/budgets/Leasing.ts"
import * as LedgerStatements from "#layers/budgets/LedgerStatements.ts"
import { postCharges, postedCharges } from "#layers/budgets/posting.ts"
import { quotaOf } from "#layers/budgets/quota.ts"
import * as Recall from "#layers/budgets/Recall.ts"
import { refusal } from "#layers/budgets/refusals.ts"
import type { Share } from "#layers/budgets/Share.ts"
import { type ShareKeeper, Shares, windowOf } from "#layers/budgets/Shares.ts"
import { BudgetLedger, type Demand, type Reservation } from "#services/budgets/BudgetLedger.ts"
import { BudgetReclaim } from "#services/budgets/BudgetReclaim.ts"
import type { ChangeFeed } from "#services/storage/ChangeFeed.ts"

export interface BudgetLedgerOptions {
  /** Names this process across its lives: the data dir's identity and the worker's index. */
  readonly holder: string
  /** How long leases count after the last renewal. Default 60 s. */
  readonly leaseTtl?: Duration.Input
  /** Unused shares go back after this. Default 3 s. */
  readonly idleAfter?: Duration.Input
  /** Default: nothing was spent before. */
  readonly initialSpent?: Leasing.InitialSpent
}

/** Rounds of asking, after which a call gives up its place to those who take what it was granted. */
const mostRounds = 20

const overloaded = new Unavailable({
  code: "overloaded",
  message: "Too many calls are waiting for their limits to be checked.",
  retryAfter: 1
})

const make = Effect.fnUntraced(function* (options: BudgetLedgerOptions) {
  const clock = yield* Clock.Clock
  const life = randomUUID()
  const ttlMs = Duration.toMillis(Duration.fromInputUnsafe(options.leaseTtl ?? "60 seconds"))
  const idleMs = Duration.toMillis(Duration.fromInputUnsafe(options.idleAfter ?? "3 seconds"))
  const statements = yield* LedgerStatements.make(life, ttlMs)
  const mailbox = yield* Queue.unbounded<Share>()
  const enqueue = Leasing.enqueueIn(mailbox)

  let holdsYet = (_now: number): boolean => false
  const keeper: ShareKeeper = { enqueue, leasesHold: (now) => holdsYet(now) }
  const shares = new Shares(keeper)
  // Registered first, so that it runs when the fibers below have ended.
  yield* Effect.addFinalizer(() => leaveAll(shares, statements, clock))

  const holder = yield* Holder.make({ name: options.holder, ttlMs, clock, statements, shares: () => shares })
  holdsYet = holder.leasesHold
  const recall = yield* Recall.make({
    life,
    giveBack: (accounts, done) => {
      const until = performance.now() + 2000
      const held: Array<Share> = []
      for (const account of accounts) {
        for (let share = shares.current.get(account); share !== undefined; share = share.next) {
          share.contendedUntil = until
          // One that is short itself has returned what it held, or is about to.
          const idle = share.recalling ? share.yielding === undefined : !share.busy && !share.queued
          if (!idle || (share.free > 0 && !share.recalling)) held.push(share)
        }
      }
      const waiter = { outstanding: held.length, answered: done }
      if (held.length === 0) return done()
      const answered = () => {
        if (--waiter.outstanding === 0) done()
      }
      for (const share of held) {
        if (share.yielding !== undefined) share.yielding.push(answered)
        else {
          share.giveBack = true
          share.places.push({ need: 0, waiter })
          enqueue(share)
        }
      }
    }
  })
  const initialSpent = options.initialSpent ?? (() => Effect.succeed(0n))
  const leasing = yield* Leasing.make({ clock, statements, shares, holder, recall, mailbox, initialSpent })
  yield* keepTidy({ shares, statements, enqueue, idleMs, clock })

  const acquire = (
    limits: ReadonlyArray<Limit>,
    demand: Demand,
    round: number
  ): Effect.Effect<Reservation, RateLimited | Unavailable> =>
    Effect.suspend(() => {
      const now = clock.currentTimeMillisUnsafe()
      const monotonic = performance.now()
      const lacking: Array<Share> = []
      const needs: Array<number> = []
      for (const limit of limits) {
        const share = shares.open(limit, now)
        const units = shares.units(limit, demand)
        if (share.closed || units === undefined) {
          return Effect.fail(refusal(limit, share.closed, share.end, now))
        }
        const current = now < share.end && (!share.budget || holder.leasesHold(now))
        if (units === 0 ? !share.budget || share.free >= 0 : current && share.free >= units) continue
        if (monotonic < share.failedUntil) return Effect.fail(databaseUnavailable)
        if (current && monotonic < share.refusedUntil && units - share.free >= share.refusedNeed) {
          return Effect.fail(refusal(limit, false, share.end, now))
        }
        lacking.push(share)
        needs.push(units)
      }
      if (lacking.length === 0) {
        const held = shares.hold(limits, demand, now)
        if (held !== undefined) return Effect.succeed(held)
      }
      if (round >= mostRounds || leasing.overloaded()) return Effect.fail(overloaded)
      return Effect.flatMap(leasing.answers(lacking, needs), () => acquire(limits, demand, round + 1))
    })

  const unavailable = <A>(effect: Effect.Effect<A, SqlError>): Effect.Effect<A, Unavailable> =>
    Effect.catch(effect, (error) =>
      Effect.andThen(
        Effect.logWarning("Budgets: the database cannot be asked", error),
        Effect.fail(databaseUnavailable)
      )
    )

  const ledger = BudgetLedger.of({
    reserve: (limits, demand) =>
      Effect.suspend(() => {
        const held = shares.hold(limits, demand, clock.currentTimeMillisUnsafe())
        return held === undefined ? acquire(limits, demand, 0) : Effect.succeed(held)
      }),
    tryReserve: (limits, demand) => shares.hold(limits, demand, clock.currentTimeMillisUnsafe()),
    post: (charges) => postCharges(charges, shares, statements),
    posted: (charges) => postedCharges(charges, shares, enqueue),
    quota: (limits) => quotaOf(limits, shares, clock.currentTimeMillisUnsafe(), enqueue),
    spent: (limit) =>
      Effect.suspend(() => {
        const now = clock.currentTimeMillisUnsafe()
        if (limit.kind !== "budget") {
          return unavailable(Effect.map(statements.used(limit.account, now), (used) => used ?? 0n))
        }
        const { end, start } = windowOf(limit, now)
        return unavailable(
          Effect.flatMap(statements.spent(limit.account, start), (spent) =>
            spent === undefined ? initialSpent(limit, start, end) : Effect.succeed(spent)
          )
        )
      })
  })
  const reclaim = BudgetReclaim.of({ reclaim: statements.reclaim })
  return Context.make(BudgetLedger, ledger).pipe(Context.add(BudgetReclaim, reclaim))
})

/**
 * The ledger over PostgreSQL: this process leases shares of each account and decides on them by itself (design.md,
 * "BudgetLedger"). Fails when the database is away while it is built. When its scope closes, everything unused is
 * returned; what running calls occupy expires.
 */
export const layer = (
  options: BudgetLedgerOptions
): Layer.Layer<BudgetLedger | BudgetReclaim, SqlError, SqlClient.SqlClient | ChangeFeed> =>
  Layer.effectContext(make(options))

/** {@link BudgetReclaim} as a function: gives back what former lives of `holder` left behind. */
export const reclaim = (holder: string): Effect.Effect<void, SqlError, BudgetReclaim> =>
  BudgetReclaim.use((budgets) => budgets.reclaim(holder))
