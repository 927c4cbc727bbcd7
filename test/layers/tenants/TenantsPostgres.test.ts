import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Layer } from "effect"
import { SqlClient } from "effect/sql"
import * as TenantsPostgres from "#layers/tenants/TenantsPostgres.ts"
import { Tenants } from "#services/tenants/Tenants.ts"
import { testDatabase } from "#test/support/Postgres.ts"
import { migrations } from "#test/support/usage.ts"

const of = (slugs: ReadonlyArray<string>) => TenantsPostgres.layer(slugs).pipe(Layer.provide(migrations))

describe("TenantsPostgres", () => {
  it.effect("makes a migrated schema for each slug and refuses to name one for anybody else", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* Effect.gen(function* () {
        const tenants = yield* Tenants
        assert.deepStrictEqual(tenants.slugs, ["acme", "big-co", "public_2"])
        assert.isFalse(tenants.dormant)
        assert.strictEqual(yield* tenants.schemaOf(""), "public")
        for (const slug of tenants.slugs) {
          const schema = yield* tenants.schemaOf(slug)
          assert.strictEqual(schema, `"tenant_${slug}"`)
          const rows = yield* sql.unsafe(`SELECT sequence_number FROM ${schema}.provenance_head`)
          assert.deepStrictEqual(rows, [{ sequence_number: 0n }])
          assert.deepStrictEqual(yield* sql.unsafe(`SELECT 1 FROM ${schema}.spend_logs`), [])
        }
        for (const stranger of ["nobody", "ACME", "acme; DROP SCHEMA public", "__proto__"]) {
          assert.isTrue(Exit.isFailure(yield* Effect.exit(tenants.schemaOf(stranger))), stranger)
        }
      }).pipe(Effect.provide(of(["big-co", "acme", "public_2", "acme"])))
      // A later start with one tenant more leaves the others as they are.
      yield* sql`INSERT INTO "tenant_acme".key_usage VALUES ('00000000-0000-0000-0000-000000000001', 1, 1, 1, 1)`
      yield* Effect.provide(Effect.asVoid(Tenants), Layer.fresh(of(["acme", "new"])))
      assert.strictEqual((yield* sql`SELECT 1 FROM "tenant_acme".key_usage`).length, 1)
    }).pipe(Effect.provide(testDatabase()))
  )

  it.effect("keeps everything in public while dormant", () =>
    Effect.gen(function* () {
      const tenants = yield* Tenants
      assert.isTrue(tenants.dormant)
      assert.strictEqual(yield* tenants.schemaOf(""), "public")
      assert.strictEqual(yield* tenants.schemaOf("anything"), "public")
    }).pipe(Effect.provide(of([]).pipe(Layer.provideMerge(testDatabase()))))
  )
})
