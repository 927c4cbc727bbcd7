import { Clock, Duration, Effect, Semaphore } from "effect"
import { SqlClient } from "effect/sql"
import type { SqlError } from "effect/sql/SqlError"
import type { LedgerStatements } from "#layers/budgets/LedgerStatements.ts"
import type { Shares } from "#layers/budgets/Shares.ts"

/** Real time: a test's clock does not keep a lease alive in the database. */
export const realClock = Clock.Clock.defaultValue()

/**
 * This process's life in the eyes of the database. Its leases of budgets count as long as it renews; when both its
 * clocks do not rule out that they have expired, it stops using them. The monotonic clock stands still while a machine
 * sleeps and the wall clock can be set back, hence both.
 */
export interface Holder {
  readonly leasesHold: (now: number) => boolean
  /** Renews, or comes back to life with only what its running calls occupy. */
  readonly renew: Effect.Effect<void, SqlError>
  /** Runs a statement that changes leases; not while the holder comes back to life. */
  readonly leasing: <A, E, R>(statement: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>
}

export interface HolderOptions {
  readonly name: string
  readonly ttlMs: number
  readonly clock: Clock.Clock
  readonly statements: LedgerStatements
  readonly shares: () => Shares
}

const mostStatements = 1024

/** Registers the process; fails when the database is away. Renewal goes on until the scope closes. */
export const make = Effect.fnUntraced(function* ({ clock, name, shares, statements, ttlMs }: HolderOptions) {
  const sql = yield* SqlClient.SqlClient
  const turn = yield* Semaphore.make(1)
  const gate = yield* Semaphore.make(mostStatements)
  let wallUntil = Number.NEGATIVE_INFINITY
  let monotonicUntil = Number.NEGATIVE_INFINITY

  const leasesHold = (now: number): boolean => now < wallUntil && performance.now() < monotonicUntil

  /** Counted from before the statement, and a tenth short, so that this process always gives up first. */
  const lasting = (statement: Effect.Effect<boolean, SqlError>): Effect.Effect<boolean, SqlError> =>
    Effect.suspend(() => {
      const wall = clock.currentTimeMillisUnsafe() + ttlMs * 0.9
      const monotonic = performance.now() + ttlMs * 0.9
      return Effect.map(statement, (done) => {
        if (done) {
          wallUntil = wall
          monotonicUntil = monotonic
        }
        return done
      })
    })

  const revive = gate.withPermits(mostStatements)(
    Effect.suspend(() => {
      const held = Array.from(shares().all()).filter((share) => share.budget)
      const kept = held.filter((share) => share.taken > 0)
      return sql
        .withTransaction(
          Effect.tap(
            statements.keep(kept.map((share) => ({ a: share.account, s: share.start, k: share.taken }))),
            statements.register(name)
          )
        )
        .pipe(
          Effect.map((leases) => {
            const amounts = new Map(leases.map((lease) => [`${lease.start} ${lease.account}`, lease.amount]))
            for (const share of held) {
              share.amount = amounts.get(`${share.start} ${share.account}`) ?? 0
              share.owed = 0
              share.lowWater = 0
            }
            return true
          })
        )
    })
  )

  const renew = turn.withPermit(
    Effect.gen(function* () {
      if (yield* lasting(statements.renew)) return
      yield* Effect.logWarning("This process's shares of budgets had expired; taking up what its calls occupy")
      yield* lasting(revive)
    })
  )

  yield* lasting(Effect.as(statements.register(name), true))
  yield* Effect.gen(function* () {
    let failing = false
    while (true) {
      yield* Effect.sleep(Duration.millis(failing ? ttlMs / 30 : ttlMs / 4))
      const done = yield* Effect.exit(renew)
      if (done._tag === "Failure" && !failing) yield* Effect.logWarning("Budgets: cannot renew leases", done.cause)
      failing = done._tag === "Failure"
    }
  }).pipe(Effect.provideService(Clock.Clock, realClock), Effect.forkScoped)

  const holder: Holder = { leasesHold, renew, leasing: gate.withPermit }
  return holder
})
