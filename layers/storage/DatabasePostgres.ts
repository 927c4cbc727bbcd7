import * as PgClient from "@effect/sql-pg/PgClient"
import type * as PgConnection from "@effect/sql-pg/PgConnection"
import * as PgPool from "@effect/sql-pg/PgPool"
import { Clock, Context, Duration, Effect, Layer, type Redacted, Scope, Stream } from "effect"
import { Reactivity } from "effect/reactivity"
import { SqlClient, type SqlConnection, SqlError, Statement } from "effect/sql"
import { DatabaseServer } from "#services/storage/DatabaseServer.ts"

/** How the pool of connections to PostgreSQL behaves. */
export interface DatabasePoolOptions {
  /** Connections at most; they are opened when needed and closed after a minute without use. */
  readonly poolSize: number
  /** How long a statement or transaction waits for a free connection (a new one included). Default 5 s. */
  readonly acquireTimeout?: Duration.Input
  /** How long opening one connection may take. Default 3 s. */
  readonly connectTimeout?: Duration.Input
  /** PostgreSQL cancels a statement after this. Default 30 s. */
  readonly statementTimeout?: Duration.Input
  /** Statements of several fibers share a connection. Default false; see {@link make}. */
  readonly multiplex?: boolean
  readonly applicationName?: string
}

/**
 * How long the client waits for a statement's answer before it gives the connection up, whatever the server does; the
 * net under PostgreSQL's own `statement_timeout` for a peer that fell silent. Migrations set it to infinity.
 */
export const StatementDeadline = Context.Reference<Duration.Duration>("sluice/storage/StatementDeadline", {
  defaultValue: () => Duration.seconds(60)
})

const clock = Clock.Clock.defaultValue()

const tooLate = (what: string, operation: string): SqlError.SqlError =>
  new SqlError.SqlError({
    reason: new SqlError.ConnectionError({ cause: new Error(what), message: `Database: ${what}`, operation })
  })

/** Real time, because a test's clock neither moves a socket nor should cut a statement off. */
const within = <A, E, R>(
  effect: Effect.Effect<A, E, R>,
  duration: Duration.Duration,
  what: string,
  operation: string
): Effect.Effect<A, E | SqlError.SqlError, R> =>
  effect.pipe(
    Effect.timeoutOrElse({ duration, orElse: () => Effect.fail(tooLate(what, operation)) }),
    Effect.provideService(Clock.Clock, clock)
  )

type Rows = ReadonlyArray<PgConnection.Row>
type Transform = (<A extends object>(rows: ReadonlyArray<A>) => ReadonlyArray<A>) | undefined

const answered = <A>(effect: Effect.Effect<A, SqlError.SqlError>): Effect.Effect<A, SqlError.SqlError> =>
  Effect.flatMap(StatementDeadline, (deadline) =>
    Duration.isFinite(deadline) ? within(effect, deadline, "no answer to a statement", "query") : effect
  )

const transformed = (effect: Effect.Effect<Rows, SqlError.SqlError>, transform: Transform) =>
  transform === undefined ? effect : Effect.map(effect, transform)

/** A pooled session as `SqlClient` wants it. */
const sqlConnection = (session: PgConnection.PgConnection): SqlConnection.Connection => {
  const rows = (text: string, values: ReadonlyArray<unknown>, prepare: boolean) =>
    Effect.map(answered(session.query(text, values, prepare)), (result) => result.rows)
  return {
    execute: (text, values, transform) => transformed(rows(text, values, true), transform),
    executeRaw: (text, values) => answered(session.query(text, values)),
    executeValues: (text, values) => answered(session.queryValues(text, values)),
    executeValuesUnprepared: (text, values) => answered(session.queryValues(text, values, false)),
    executeUnprepared: (text, values, transform) => transformed(rows(text, values, false), transform),
    executeStream: (text, values, transform) => {
      const stream = session.stream(text, values)
      return transform === undefined ? stream : Stream.mapArray(stream, (part) => transform(part) as typeof part)
    }
  }
}

/** PostgreSQL answers the COMMIT of an aborted transaction with success and the word ROLLBACK. */
const commit = (connection: SqlConnection.Connection): Effect.Effect<void, SqlError.SqlError> =>
  Effect.flatMap(connection.executeRaw("COMMIT", []), (result) =>
    (result as PgConnection.Result).command === "ROLLBACK"
      ? Effect.fail(
          new SqlError.SqlError({
            reason: new SqlError.UnknownError({
              cause: new Error("COMMIT of an aborted transaction"),
              message: "Database: the transaction had failed and was rolled back",
              operation: "commit"
            })
          })
        )
      : Effect.void
  )

const json = Statement.custom<Statement.Custom<"PgJson", unknown>>("PgJson")

/**
 * A pool of PostgreSQL sessions as `SqlClient`, in which no wait is unbounded.
 *
 * The driver's own client bounds connecting (`connectTimeout`) but not the wait for a free connection, nor the wait
 * for an answer from a silent peer; so the client is put together here from the driver's pool, with `acquireTimeout`
 * around every check-out, `StatementDeadline` around every statement, and PostgreSQL's own `statement_timeout` and
 * `idle_in_transaction_session_timeout` (60 s) in the start-up packet.
 *
 * When PostgreSQL goes away, statements on the wire fail at once (socket closed), later ones as fast as the connection
 * attempt does (a missing unix socket or refused port: about a millisecond; a silent host: `connectTimeout`). Nothing
 * is retried here. Dead sessions leave the pool by themselves and the next statement opens a new one, so the pool is
 * back as soon as PostgreSQL is. All of these are `SqlError`s; those of a lost connection have the reason
 * `ConnectionError`. PostgreSQL's own notice of a shutdown (57P01..03) arrives as `UnknownError`.
 *
 * `multiplex` pipelines statements of several fibers on one session. It more than doubles the throughput of tiny
 * selects, but an interrupted statement then runs on, and a slow one holds up those behind it; so it is off by default.
 * Statements are prepared once per session and up to 200 are kept; DDL that changes a result's columns is noticed and
 * the statement prepared anew.
 */
export const make = Effect.fn("DatabasePostgres.make")(function* (
  options: DatabasePoolOptions & { readonly url: Redacted.Redacted<string> }
) {
  const acquireTimeout = Duration.fromInputUnsafe(options.acquireTimeout ?? "5 seconds")
  const statementTimeout = Duration.toMillis(Duration.fromInputUnsafe(options.statementTimeout ?? "30 seconds"))
  const config: PgClient.PgPoolConfig = {
    url: options.url,
    maxConnections: options.poolSize,
    idleTimeout: "1 minute",
    connectTimeout: options.connectTimeout ?? "3 seconds",
    keepAlive: "10 seconds",
    applicationName: options.applicationName ?? "sluice",
    multiplex: options.multiplex ?? false,
    preparedStatementCacheSize: 200,
    // jsonb documents and stored bodies may be as large as a request.
    maxMessageSize: 64 * 1024 * 1024,
    startupParameters: {
      statement_timeout: String(Number.isFinite(statementTimeout) ? statementTimeout : 0),
      idle_in_transaction_session_timeout: "60000",
      timezone: "UTC"
    }
  }
  const pool = yield* PgPool.make(config).pipe(Effect.provideService(Clock.Clock, clock))
  const bounded = <A, R>(acquire: Effect.Effect<A, SqlError.SqlError, R>) =>
    within(acquire, acquireTimeout, "no free connection", "acquire")
  const get = bounded(pool.get)
  const reserve = bounded(pool.reserve)

  const client = yield* SqlClient.make({
    acquirer: Effect.map(get, sqlConnection),
    borrower: (use) =>
      Effect.acquireUseRelease(
        Scope.make(),
        (scope) => Effect.flatMap(Scope.provide(get, scope), (session) => use(sqlConnection(session))),
        Scope.close
      ),
    transactionAcquirer: Effect.map(reserve, sqlConnection),
    compiler: PgClient.makeCompiler(),
    driver: "@effect/sql-pg",
    prepareTransactionControls: true,
    commit,
    releaseSavepoint: (name) => `RELEASE SAVEPOINT ${name}`,
    spanAttributes: [["db.system.name", "postgresql"]]
  })
  const pg: PgClient.PgClient = Object.assign(client, {
    [PgClient.TypeId]: PgClient.TypeId,
    config,
    json: (value: unknown) => Statement.fragment([json(value)]),
    listen: (channel: string) => Effect.flatMap(reserve, (session) => session.listen(channel)),
    notify: (channel: string, payload: string) => Effect.asVoid(client`SELECT pg_notify(${channel}, ${payload})`)
  })
  return pg
})

/** `PgClient` and `SqlClient` over the database of `DatabaseServer`. Building it does not connect yet. */
export const layer = (
  options: DatabasePoolOptions
): Layer.Layer<PgClient.PgClient | SqlClient.SqlClient, SqlError.SqlError, DatabaseServer> =>
  Layer.effectContext(
    Effect.gen(function* () {
      const server = yield* DatabaseServer
      const client = yield* make({ ...options, url: server.url })
      return Context.make(PgClient.PgClient, client).pipe(Context.add(SqlClient.SqlClient, client))
    })
  ).pipe(Layer.provide(Reactivity.layer))
