import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { migrate } from "#layers/storage/Migrator.ts"
import { DatabaseStartError } from "#services/storage/DatabaseServer.ts"
import { Migrations } from "#services/storage/Migrations.ts"

/** The project's migration files applied through `SqlClient`; each applied file is logged. */
export const layer: Layer.Layer<Migrations, never, SqlClient.SqlClient> = Layer.effect(
  Migrations,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    return Migrations.of({
      migrate: (schemas) =>
        migrate({ schemas }).pipe(
          Effect.provideService(SqlClient.SqlClient, sql),
          Effect.flatMap(
            Effect.forEach(
              ({ durationMs, file, schema }) => Effect.logInfo(`Migrated ${schema}: ${file} (${durationMs} ms)`),
              { discard: true }
            )
          ),
          Effect.catchTag("MigrationError", ({ message }) => Effect.fail(new DatabaseStartError({ message }))),
          Effect.catchTag("SqlError", ({ reason }) => {
            const said = reason.cause instanceof Error ? reason.cause.message : reason.message
            return Effect.fail(new DatabaseStartError({ message: `The database cannot be migrated: ${said}` }))
          })
        )
    })
  })
)
