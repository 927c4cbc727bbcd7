import { mkdirSync, mkdtempSync, readdirSync, rmSync, unlinkSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { migrate } from "#layers/storage/Migrator.ts"
import { testDatabase } from "#test/support/Postgres.ts"

const database = Effect.provide(testDatabase({ content: "empty" }))

/** A migrations folder with the given files. */
const folder = (files: Readonly<Record<string, string>>) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const directory = mkdtempSync(join(tmpdir(), "sluice-migrations-"))
      write(directory, files)
      return directory
    }),
    (directory) => Effect.sync(() => rmSync(directory, { recursive: true }))
  )

const write = (directory: string, files: Readonly<Record<string, string>>): void => {
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(directory, name)), { recursive: true })
    writeFileSync(join(directory, name), text)
  }
}

const tables = (schema: string) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    Effect.map(
      sql<{ tablename: string }>`SELECT tablename FROM pg_tables WHERE schemaname = ${schema} ORDER BY 1`,
      (rows) => rows.map((row) => row.tablename)
    )
  )

describe("Migrator", () => {
  it.effect("applies each file once, in order, to the schemas it is for", () =>
    Effect.gen(function* () {
      const directory = yield* folder({
        "public/0001_a.sql":
          "CREATE TABLE a (id int)\n-- next\nCREATE INDEX a_id ON a (id)\n-- next\n-- nothing here\n",
        "tenant/0001_t.sql": "CREATE TABLE t (id int)"
      })
      const options = { schemas: ["acme", "zeta", "acme"], directory }
      const done = yield* migrate(options)
      assert.deepStrictEqual(
        done.map(({ file, schema }) => `${schema} ${file}`),
        ["public public/0001_a.sql", "acme tenant/0001_t.sql", "zeta tenant/0001_t.sql"]
      )
      assert.deepStrictEqual(yield* tables("public"), ["a", "schema_migrations"])
      assert.deepStrictEqual(yield* tables("acme"), ["schema_migrations", "t"])
      assert.deepStrictEqual(yield* migrate(options), [])

      write(directory, { "tenant/0003_u.sql": "ALTER TABLE t ADD COLUMN name text" })
      assert.deepStrictEqual(
        (yield* migrate({ ...options, schemas: ["acme", "public"] })).map(({ file, schema }) => `${schema} ${file}`),
        ["acme tenant/0003_u.sql", "public tenant/0001_t.sql", "public tenant/0003_u.sql"]
      )
    }).pipe(database)
  )

  it.effect("leaves nothing of a file that fails, and names it", () =>
    Effect.gen(function* () {
      const directory = yield* folder({
        "public/0001_a.sql": "CREATE TABLE a (id int)",
        "public/0002_b.sql": "CREATE TABLE b (id int)\n-- next\nSELECT 1 / 0"
      })
      const error = yield* Effect.flip(migrate({ schemas: [], directory }))
      assert.include(error.message, "public/0002_b.sql failed in schema public: division by zero")
      assert.deepStrictEqual(yield* tables("public"), ["a", "schema_migrations"])
      write(directory, { "public/0002_b.sql": "CREATE TABLE b (id int)" })
      assert.strictEqual((yield* migrate({ schemas: [], directory })).length, 1)
    }).pipe(database)
  )

  it.effect("refuses changed, missing, late and double files", () =>
    Effect.gen(function* () {
      const directory = yield* folder({
        "public/0001_a.sql": "CREATE TABLE a (id int)",
        "public/0003_c.sql": "CREATE TABLE c (id int)"
      })
      const run = migrate({ schemas: [], directory })
      const refused = Effect.map(Effect.flip(run), (error) => error.message)
      yield* run

      write(directory, { "public/0001_a.sql": "CREATE TABLE a (id int, more int)" })
      assert.include(yield* refused, "public/0001_a.sql was changed")
      write(directory, { "public/0001_a.sql": "CREATE TABLE a (id int)", "public/0002_b.sql": "SELECT 1" })
      assert.include(yield* refused, "public/0002_b.sql comes below 3")
      unlinkSync(join(directory, "public/0002_b.sql"))
      write(directory, { "public/0003_d.sql": "SELECT 1" })
      assert.include(yield* refused, "same number")
      unlinkSync(join(directory, "public/0003_d.sql"))
      write(directory, { "public/later.sql": "SELECT 1" })
      assert.include(yield* refused, "is not named")
      unlinkSync(join(directory, "public/later.sql"))
      unlinkSync(join(directory, "public/0003_c.sql"))
      assert.include(yield* refused, "public/0003_c.sql was applied to schema public but its file is missing")
      write(directory, { "public/0003_c.sql": "CREATE TABLE c (id int)" })
      assert.deepStrictEqual(yield* run, [])
      // Line ends that a checkout converted are no change.
      write(directory, { "public/0003_c.sql": "CREATE TABLE c (id int)".replaceAll("\n", "\r\n") })
      assert.deepStrictEqual(yield* run, [])
      const name = yield* Effect.flip(migrate({ schemas: ['x"; DROP TABLE a'], directory }))
      assert.include(name.message, "cannot be a schema")
    }).pipe(database)
  )

  it.effect("runs a no-transaction file outside a transaction, inside its schema", () =>
    Effect.gen(function* () {
      const directory = yield* folder({
        "tenant/0001_t.sql": "CREATE TABLE t (id int)",
        "tenant/0002_i.sql": "-- no-transaction\nCREATE INDEX CONCURRENTLY IF NOT EXISTS t_id ON t (id)"
      })
      assert.strictEqual((yield* migrate({ schemas: ["acme"], directory })).length, 2)
      const sql = yield* SqlClient.SqlClient
      assert.deepStrictEqual(yield* sql`SELECT schemaname::text AS s FROM pg_indexes WHERE indexname = 't_id'`, [
        { s: "acme" }
      ])
      // The connections in the pool are as they were.
      for (let round = 0; round < 8; round++) {
        assert.deepStrictEqual(
          yield* sql`SELECT current_setting('search_path') AS p, current_setting('statement_timeout') AS t`,
          [{ p: '"$user", public', t: "30s" }]
        )
      }
    }).pipe(database)
  )

  it.effect("lets processes that start together each find the database migrated", () =>
    Effect.gen(function* () {
      const directory = yield* folder({
        "public/0001_a.sql": "CREATE TABLE a (id int)\n-- next\nSELECT pg_sleep(0.1)",
        "tenant/0001_t.sql": "CREATE TABLE t (id int)",
        "tenant/0002_i.sql": "-- no-transaction\nCREATE INDEX CONCURRENTLY t_id ON t (id)"
      })
      const runs = yield* Effect.all(
        Array.from({ length: 4 }, () => migrate({ schemas: ["acme", "public"], directory })),
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(runs.map((done) => done.length).sort(), [0, 0, 0, 5])
    }).pipe(database)
  )

  it.effect("gives up on a lock that somebody keeps", () =>
    Effect.gen(function* () {
      const directory = yield* folder({ "public/0001_a.sql": "SELECT pg_sleep(1)" })
      yield* Effect.forkChild(migrate({ schemas: [], directory }))
      yield* Effect.flatMap(SqlClient.SqlClient, (sql) =>
        sql`SELECT 1 FROM pg_locks WHERE locktype = 'advisory'`.pipe(
          Effect.repeat({ until: (rows) => rows.length > 0 })
        )
      )
      const error = yield* Effect.flip(migrate({ schemas: [], directory, lockTimeout: "100 millis" }))
      assert.include(error.message, "Another process has been migrating")
    }).pipe(database)
  )

  it.effect("applies the project's own migrations to a tenant's schema beside public", () =>
    Effect.gen(function* () {
      const own = (area: string) => readdirSync(new URL(`../../../migrations/${area}/`, import.meta.url)).length
      const done = yield* migrate({ schemas: ["public", "acme"] })
      assert.strictEqual(done.length, own("public") + 2 * own("tenant"))
      const inTenant = yield* tables("acme")
      const inPublic = yield* tables("public")
      assert.deepStrictEqual(
        inTenant.filter((table) => !inPublic.includes(table)),
        []
      )
    }).pipe(database)
  )
})
