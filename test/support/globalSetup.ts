import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Effect, Exit, References, Redacted, Scope } from "effect"
import { Reactivity } from "effect/reactivity"
import { SqlClient } from "effect/sql"
import type { TestProject } from "vitest/node"
import * as DatabasePostgres from "#layers/storage/DatabasePostgres.ts"
import * as EmbeddedPostgres from "#layers/storage/EmbeddedPostgres.ts"
import { migrate } from "#layers/storage/Migrator.ts"

declare module "vitest" {
  export interface ProvidedContext {
    /** The run's PostgreSQL: its maintenance database. */
    readonly postgresUrl: string
    /** The migrated database that every test database is a copy of. */
    readonly postgresTemplate: string
    /** Why the template lacks migrations; empty when all is well. Only tests that want a database fail over it. */
    readonly postgresProblem: string
  }
}

const TEMPLATE = "sluice_template"

const databaseUrl = (url: string, database: string): Redacted.Redacted<string> => {
  const target = new URL(url)
  target.pathname = `/${database}`
  return Redacted.make(target.href)
}

/** One PostgreSQL for the whole run, without durability, in a directory that goes away afterwards. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const directory = mkdtempSync(join(tmpdir(), "sluice-test-"))
  const scope = Scope.makeUnsafe()
  const close = async () => {
    await Effect.runPromise(Scope.close(scope, Exit.void))
    rmSync(directory, { recursive: true, force: true })
  }
  const start = Effect.gen(function* () {
    const server = yield* EmbeddedPostgres.make({
      dataDir: directory,
      durable: false,
      // Many test files, each with a pool of its own or a whole gateway.
      settings: { max_connections: "300", autovacuum: "off" }
    })
    const url = Redacted.value(server.url)
    yield* Effect.scoped(
      Effect.gen(function* () {
        const sql = yield* DatabasePostgres.make({ url: server.url, poolSize: 1 })
        yield* sql`CREATE DATABASE ${sql(TEMPLATE)}`
      })
    )
    // A pool of its own that is closed again: a template with a visitor cannot be copied.
    const problem = yield* Effect.scoped(
      Effect.gen(function* () {
        const sql = yield* DatabasePostgres.make({ url: databaseUrl(url, TEMPLATE), poolSize: 1 })
        return yield* migrate({ schemas: ["public"] }).pipe(
          Effect.provideService(SqlClient.SqlClient, sql),
          Effect.as(""),
          Effect.catchTag("MigrationError", (error) => Effect.succeed(error.message))
        )
      })
    )
    return { url, problem }
  })
  try {
    const { problem, url } = await Effect.runPromise(
      start.pipe(
        Scope.provide(scope),
        Effect.provide(Reactivity.layer),
        Effect.provideService(References.MinimumLogLevel, "Error")
      )
    )
    project.provide("postgresUrl", url)
    project.provide("postgresTemplate", TEMPLATE)
    project.provide("postgresProblem", problem)
  } catch (cause) {
    await close()
    throw cause
  }
  return close
}
