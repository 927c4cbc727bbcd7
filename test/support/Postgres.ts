import { randomBytes } from "node:crypto"
import type * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Layer, Redacted, type Scope } from "effect"
import { Reactivity } from "effect/reactivity"
import type { SqlClient } from "effect/sql"
import { inject } from "vitest"
import * as DatabasePostgres from "#layers/storage/DatabasePostgres.ts"
import { DatabaseServer } from "#services/storage/DatabaseServer.ts"

/** Which database a test starts from. */
export interface TestDatabaseOptions {
  /** `migrated` (default): with all migrations applied to schema public; `empty`: none. */
  readonly content?: "migrated" | "empty"
  /** Default 5. */
  readonly poolSize?: number
}

/**
 * A fresh database of the run's PostgreSQL, dropped when the scope closes; its URL, for tests that start whole
 * gateways. As fast as a copy of some megabytes.
 */
export const freshDatabase = (
  options: TestDatabaseOptions = {}
): Effect.Effect<Redacted.Redacted<string>, never, Scope.Scope> => {
  const maintenance = Redacted.make(inject("postgresUrl"))
  const name = `test_${randomBytes(6).toString("hex")}`
  const template = options.content === "empty" ? "template0" : inject("postgresTemplate")
  const problem = options.content === "empty" ? "" : inject("postgresProblem")
  if (problem !== "") return Effect.die(new Error(problem))
  const run = (make: (sql: SqlClient.SqlClient) => Effect.Effect<unknown, unknown>) =>
    Effect.scoped(
      Effect.flatMap(DatabasePostgres.make({ url: maintenance, poolSize: 1, acquireTimeout: "30 seconds" }), make)
    ).pipe(Effect.provide(Reactivity.layer), Effect.orDie)
  return Effect.acquireRelease(
    Effect.as(
      run((sql) => sql`CREATE DATABASE ${sql(name)} TEMPLATE ${sql(template)} STRATEGY FILE_COPY`),
      name
    ),
    () => run((sql) => sql`DROP DATABASE IF EXISTS ${sql(name)} WITH (FORCE)`)
  ).pipe(
    Effect.map(() => {
      const url = new URL(Redacted.value(maintenance))
      url.pathname = `/${name}`
      return Redacted.make(url.href)
    })
  )
}

/** `DatabaseServer` on a fresh database. */
export const testDatabaseServer = (options: TestDatabaseOptions = {}): Layer.Layer<DatabaseServer> =>
  Layer.effect(
    DatabaseServer,
    Effect.map(freshDatabase(options), (url) => ({ url, kind: "external", state: Effect.succeed("ready" as const) }))
  )

/** `SqlClient`, `PgClient` and `DatabaseServer` on a fresh database: one a test file through `layer(testDatabase())`. */
export const testDatabase = (
  options: TestDatabaseOptions = {}
): Layer.Layer<PgClient.PgClient | SqlClient.SqlClient | DatabaseServer> =>
  DatabasePostgres.layer({ poolSize: options.poolSize ?? 5 }).pipe(
    Layer.provideMerge(testDatabaseServer(options)),
    Layer.orDie
  )
