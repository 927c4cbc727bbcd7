import { assert, describe, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import * as MigrationsPostgres from "#layers/storage/MigrationsPostgres.ts"
import { Migrations } from "#services/storage/Migrations.ts"
import { testDatabase } from "#test/support/Postgres.ts"

describe("MigrationsPostgres", () => {
  layer(MigrationsPostgres.layer.pipe(Layer.provideMerge(testDatabase())))("on the template", (it) => {
    it.effect("makes a tenant's schema, and says in one line what stops it", () =>
      Effect.gen(function* () {
        const migrations = yield* Migrations
        const sql = yield* SqlClient.SqlClient
        yield* migrations.migrate(["public", "acme"])
        assert.strictEqual((yield* sql`SELECT 1 FROM acme.schema_migrations LIMIT 1`).length, 1)
        yield* sql`UPDATE acme.schema_migrations SET checksum = '' WHERE number = 1`
        const error = yield* Effect.flip(migrations.migrate(["acme"]))
        assert.strictEqual(error._tag, "DatabaseStartError")
        assert.match(
          error.message,
          /^Migration tenant\/0001_[^\n]+ was changed after it was applied to schema acme[^\n]*$/
        )
      })
    )
  })
})
