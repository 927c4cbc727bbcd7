import { assert, describe, it, layer } from "@effect/vitest"
import { Clock, Duration, Effect, Exit, Redacted } from "effect"
import { TestClock } from "effect/testing"
import { Reactivity } from "effect/reactivity"
import { SqlClient } from "effect/sql"
import * as PgClient from "@effect/sql-pg/PgClient"
import { createServer, type Socket } from "node:net"
import * as DatabasePostgres from "#layers/storage/DatabasePostgres.ts"
import { freshDatabase, testDatabase } from "#test/support/Postgres.ts"

/** Accepts connections and never says a word: a host behind a firewall that swallows packets looks like this. */
const silentServer = Effect.acquireRelease(
  Effect.callback<{ readonly port: number; readonly close: () => void }>((resume) => {
    const sockets = new Set<Socket>()
    const server = createServer((socket) => sockets.add(socket.on("error", () => {})))
    server.listen(0, "127.0.0.1", () => {
      const address = server.address()
      const port = typeof address === "object" && address !== null ? address.port : 0
      const close = () => {
        for (const socket of sockets) socket.destroy()
        server.close()
      }
      resume(Effect.succeed({ port, close }))
    })
  }),
  (server) => Effect.sync(server.close)
)

describe("DatabasePostgres", () => {
  layer(testDatabase({ content: "empty", poolSize: 2 }))("on a database", (it) => {
    it.effect("answers statements and rolls a failed transaction back", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        yield* sql`CREATE TABLE notes (id int PRIMARY KEY, body jsonb)`
        const pg = yield* PgClient.PgClient
        yield* sql`INSERT INTO notes VALUES (1, ${pg.json({ a: [1, "x"] })})`
        const exit = yield* Effect.exit(
          sql.withTransaction(Effect.andThen(sql`INSERT INTO notes VALUES (2, NULL)`, Effect.fail("no" as const)))
        )
        assert.isTrue(Exit.isFailure(exit))
        assert.deepStrictEqual(yield* sql`SELECT * FROM notes`, [{ id: 1, body: { a: [1, "x"] } }])
      })
    )

    it.effect("fails a transaction whose failure was swallowed, instead of losing it", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const error = yield* Effect.flip(sql.withTransaction(Effect.ignore(sql`SELECT 1 / 0`)))
        assert.strictEqual(error._tag, "SqlError")
      })
    )

    it.effect("a test's clock does not cut off a statement", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const [rows] = yield* Effect.all([sql`SELECT pg_sleep(0.2), 7 AS seven`, TestClock.adjust("1 hour")], {
          concurrency: "unbounded"
        })
        assert.strictEqual(rows[0]?.["seven"], 7)
        assert.strictEqual(yield* Clock.currentTimeMillis, 3_600_000)
      })
    )
  })

  it.live("bounds the wait for a free connection", () =>
    Effect.gen(function* () {
      const url = yield* freshDatabase({ content: "empty" })
      const sql = yield* DatabasePostgres.make({ url, poolSize: 1, acquireTimeout: "100 millis" })
      yield* sql`SELECT 1`
      const began = performance.now()
      yield* Effect.scoped(
        Effect.gen(function* () {
          yield* sql.reserve
          const error = yield* Effect.flip(sql`SELECT 1`)
          assert.strictEqual(error.reason._tag, "ConnectionError")
          const inTransaction = yield* Effect.flip(sql.withTransaction(sql`SELECT 1`))
          assert.strictEqual(inTransaction.reason._tag, "ConnectionError")
        })
      )
      assert.isBelow(performance.now() - began, 2_000)
      assert.strictEqual((yield* sql`SELECT 1`).length, 1)
    }).pipe(Effect.provide(Reactivity.layer))
  )

  it.live("bounds connecting to a host that stays silent", () =>
    Effect.gen(function* () {
      const { port } = yield* silentServer
      const url = Redacted.make(`postgresql://u:p@127.0.0.1:${port}/x`)
      const sql = yield* DatabasePostgres.make({ url, poolSize: 1, connectTimeout: "150 millis" })
      const began = performance.now()
      const error = yield* Effect.flip(sql`SELECT 1`)
      assert.strictEqual(error.reason._tag, "ConnectionError")
      assert.isBelow(performance.now() - began, 3_000)
    }).pipe(Effect.provide(Reactivity.layer))
  )

  it.live("bounds a statement on both sides", () =>
    Effect.gen(function* () {
      const url = yield* freshDatabase({ content: "empty" })
      const sql = yield* DatabasePostgres.make({ url, poolSize: 1, statementTimeout: "100 millis" })
      const cancelled = yield* Effect.flip(sql`SELECT pg_sleep(20)`)
      assert.strictEqual(cancelled.reason._tag, "StatementTimeoutError")
      const patient = yield* DatabasePostgres.make({ url, poolSize: 1, statementTimeout: Duration.infinity })
      const late = yield* Effect.flip(patient`SELECT pg_sleep(20)`).pipe(
        Effect.provideService(DatabasePostgres.StatementDeadline, Duration.millis(100))
      )
      assert.strictEqual(late.reason._tag, "ConnectionError")
      assert.strictEqual((yield* patient`SELECT 1`).length, 1)
    }).pipe(Effect.provide(Reactivity.layer))
  )

  it.live("gives tests a migrated database", () =>
    Effect.gen(function* () {
      const url = yield* freshDatabase()
      const sql = yield* DatabasePostgres.make({ url, poolSize: 1 })
      assert.strictEqual((yield* sql`SELECT to_regclass('public.schema_migrations') IS NOT NULL AS t`)[0]?.["t"], true)
    }).pipe(Effect.provide(Reactivity.layer))
  )
})
