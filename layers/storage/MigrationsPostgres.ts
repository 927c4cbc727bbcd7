import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { type AppliedMigration, migrate } from "#layers/storage/Migrator.ts"
import { DatabaseStartError } from "#services/storage/DatabaseServer.ts"
import { Migrations } from "#services/storage/Migrations.ts"

/** One line of what was done, however many files that were; each of them at level debug. */
const report = Effect.fnUntraced(function* (applied: ReadonlyArray<AppliedMigration>) {
  if (applied.length === 0) return
  for (const { durationMs, file, schema } of applied) {
    yield* Effect.logDebug(`Migrated ${schema}: ${file} (${durationMs} ms)`)
  }
  const total = applied.reduce((sum, { durationMs }) => sum + durationMs, 0)
  const schemas = new Set(applied.map(({ schema }) => schema)).size
  yield* Effect.logInfo(
    `The database is migrated: ${applied.length} ${applied.length === 1 ? "file" : "files"} in ${schemas} ${
      schemas === 1 ? "schema" : "schemas"
    } (${total} ms)`
  )
})

/** The project's migration files applied through `SqlClient`; what was applied is logged. */
export const layer: Layer.Layer<Migrations, never, SqlClient.SqlClient> = Layer.effect(
  Migrations,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    return Migrations.of({
      migrate: (schemas) =>
        migrate({ schemas }).pipe(
          Effect.provideService(SqlClient.SqlClient, sql),
          Effect.flatMap(report),
          Effect.catchTag("MigrationError", ({ message }) => Effect.fail(new DatabaseStartError({ message }))),
          Effect.catchTag("SqlError", ({ reason }) => {
            const said = reason.cause instanceof Error ? reason.cause.message : reason.message
            return Effect.fail(new DatabaseStartError({ message: `The database cannot be migrated: ${said}` }))
          })
        )
    })
  })
)
