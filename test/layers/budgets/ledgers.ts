import { Context, type Duration, Effect, Exit, Layer, Result, Scope } from "effect"
import { SqlClient } from "effect/sql"
import { limitOf, type Limit, Window } from "#domain/limits.ts"
import * as BudgetLedgerPostgres from "#layers/budgets/BudgetLedgerPostgres.ts"
import * as ChangeFeedPostgres from "#layers/storage/ChangeFeedPostgres.ts"
import * as DatabasePostgres from "#layers/storage/DatabasePostgres.ts"
import { BudgetLedger, type Charge, type Demand, type Reservation } from "#services/budgets/BudgetLedger.ts"
import { BudgetReclaim } from "#services/budgets/BudgetReclaim.ts"
import { DatabaseServer } from "#services/storage/DatabaseServer.ts"

/** One process's ledger, with connections of its own. */
export interface TestProcess {
  readonly ledger: BudgetLedger["Service"]
  readonly reclaim: BudgetReclaim["Service"]["reclaim"]
  readonly sql: SqlClient.SqlClient
  /** Ends as a process should. */
  readonly stop: Effect.Effect<void>
  /** Cuts it off from the database for good: to everybody else it is dead. */
  readonly kill: Effect.Effect<void>
}

export const startProcess = Effect.fnUntraced(function* (
  holder: string,
  options: {
    readonly leaseTtl?: Duration.Input
    readonly idleAfter?: Duration.Input
    readonly initialSpent?: BudgetLedgerPostgres.BudgetLedgerOptions["initialSpent"]
  } = {}
) {
  const outer = yield* Scope.Scope
  const server = yield* DatabaseServer
  const connections = yield* Scope.fork(outer)
  const storage = ChangeFeedPostgres.layer.pipe(
    Layer.provideMerge(DatabasePostgres.layer({ poolSize: 4, acquireTimeout: "300 millis" })),
    Layer.provide(Layer.succeed(DatabaseServer, server))
  )
  const database = yield* Layer.buildWithScope(storage, connections)
  const own = yield* Scope.fork(outer)
  const { initialSpent, ...rest } = options
  const built = yield* Layer.buildWithScope(
    BudgetLedgerPostgres.layer({ holder, ...rest, ...(initialSpent === undefined ? {} : { initialSpent }) }).pipe(
      Layer.provide(Layer.succeedContext(database))
    ),
    own
  )
  const started: TestProcess = {
    ledger: Context.get(built, BudgetLedger),
    reclaim: Context.get(built, BudgetReclaim).reclaim,
    sql: Context.get(database, SqlClient.SqlClient),
    stop: Scope.close(own, Exit.void),
    kill: Scope.close(connections, Exit.void)
  }
  return started
})

export const budget = (id: string, nanos: bigint, window: Window = Window.Lifetime()): Limit =>
  limitOf("key", id, "budget", nanos, window)

export const requests = (id: string, most: bigint): Limit => limitOf("key", id, "requests", most, Window.Minute())

export const tokens = (id: string, most: bigint): Limit => limitOf("team", id, "tokens", most, Window.Minute())

export const demand = (nanos: bigint, tokens = 0): Demand => ({ nanos, tokens })

/** The reservation, or the code of the refusal. */
export const tried = (process: TestProcess, limits: ReadonlyArray<Limit>, wanted: Demand) =>
  Effect.map(Effect.result(process.ledger.reserve(limits, wanted)), (result): Reservation | string =>
    Result.isSuccess(result) ? result.success : result.failure.code
  )

/** What the usage ledger does with the charges of settled calls. */
export const record = (process: TestProcess, charges: ReadonlyArray<Charge>) =>
  Effect.andThen(
    process.sql.withTransaction(process.ledger.post(charges)),
    Effect.sync(() => process.ledger.posted(charges))
  )

/** What the database says about a budget. */
export const account = Effect.fnUntraced(function* (name: string) {
  const sql = yield* SqlClient.SqlClient
  const [row] = yield* sql<{ spent: bigint; leased: bigint }>`SELECT
    (SELECT coalesce(sum(spent), 0)::int8 FROM ledger_accounts WHERE account = ${name}) AS spent,
    (SELECT coalesce(sum(amount), 0)::int8 FROM ledger_leases WHERE account = ${name}) AS leased`
  return { spent: row?.spent ?? -1n, leased: row?.leased ?? -1n }
})
