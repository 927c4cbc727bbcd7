import { assert, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { uuidv7 } from "#domain/ids.ts"
import { findPii, piiEntities } from "#domain/pii.ts"
import { redact, redactionTokensIn, rehydrate } from "#domain/redaction.ts"
import * as RedactionStorePostgres from "#layers/guardrails/RedactionStorePostgres.ts"
import * as SecretsAesGcm from "#layers/security/SecretsAesGcm.ts"
import * as MigrationsPostgres from "#layers/storage/MigrationsPostgres.ts"
import * as TenantsPostgres from "#layers/tenants/TenantsPostgres.ts"
import { type RedactionOwner, RedactionStore } from "#services/guardrails/RedactionStore.ts"
import { instanceSecrets } from "#test/support/guardrails.ts"
import { testDatabase } from "#test/support/Postgres.ts"

const environment = RedactionStorePostgres.layer.pipe(
  Layer.provideMerge(TenantsPostgres.layer(["acme", "zeta"])),
  Layer.provideMerge(MigrationsPostgres.layer),
  Layer.provideMerge(SecretsAesGcm.layer.pipe(Layer.provide(instanceSecrets()))),
  Layer.provideMerge(testDatabase())
)

const owner = (tenant: string): RedactionOwner => ({ tenant, keyId: uuidv7(Date.now()) })
const everything = new Set(piiEntities)

const redactFor = (of: RedactionOwner, text: string) =>
  Effect.gen(function* () {
    const store = yield* RedactionStore
    const redacted = redact(text, findPii(text, everything))
    const values = new Map(redacted.tokens.map(({ token, value }) => [token, value]))
    yield* store.keep(
      of,
      Array.from(values, ([token, value]) => ({ token, value }))
    )
    return redacted
  })

const rehydrateFor = (of: RedactionOwner, text: string) =>
  Effect.gen(function* () {
    const store = yield* RedactionStore
    const values = yield* store.resolve(of, redactionTokensIn(text))
    return rehydrate(text, (token) => values.get(token))
  })

layer(environment)("RedactionStore over PostgreSQL", (it) => {
  const text =
    "Anna Schmidt <anna@firma.example>, +49 30 901820, 4111 1111 1111 1111; anna@firma.example again, " +
    "DE89 3704 0044 0532 0130 00, 10.0.0.7, <EMAIL_3f9a2c>, https://x.example/\ud800?q=\u0000💧"

  it.effect("gives a text back exactly, to the tenant and key that redacted it and to nobody else", () =>
    Effect.gen(function* () {
      const mine = owner("acme")
      const redacted = yield* redactFor(mine, text)
      assert.notInclude(redacted.text, "anna@firma.example")
      assert.isAtLeast(redacted.tokens.length, 6)
      assert.strictEqual(yield* rehydrateFor(mine, redacted.text), text)
      const others: ReadonlyArray<RedactionOwner> = [
        owner("acme"),
        { ...mine, tenant: "zeta" },
        { ...mine, tenant: "" },
        { ...mine, keyId: null }
      ]
      for (const other of others) assert.strictEqual(yield* rehydrateFor(other, redacted.text), redacted.text)
      const asMaster = yield* redactFor({ tenant: "", keyId: null }, text)
      assert.strictEqual(yield* rehydrateFor({ tenant: "", keyId: null }, asMaster.text), text)
      assert.strictEqual(yield* rehydrateFor(mine, `${asMaster.text}|${redacted.text}`), `${asMaster.text}|${text}`)
    })
  )

  it.effect("stores nothing readable, and a row that was moved or changed does not open", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const mine = owner("acme")
      const theirs = owner("acme")
      const redacted = yield* redactFor(mine, text)
      const rows = yield* sql<{ all: string }>`SELECT string_agg(encode(sealed, 'escape'), '') AS all
        FROM tenant_acme.redactions WHERE key_id = ${mine.keyId}`
      assert.notInclude(rows[0]!.all, "firma")
      assert.notInclude(rows[0]!.all, "4111")
      yield* sql`INSERT INTO tenant_acme.redactions
        SELECT tenant, ${theirs.keyId}::text::uuid, token, sealed, encryption_key_id, expires_at
        FROM tenant_acme.redactions WHERE key_id = ${mine.keyId}`
      assert.strictEqual(yield* rehydrateFor(theirs, redacted.text), redacted.text)
      assert.strictEqual(yield* rehydrateFor(mine, redacted.text), text)
    })
  )

  it.effect("keeps and resolves thousands of spans in one statement each", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const mine = owner("zeta")
      const many = Array.from({ length: 5000 }, (_, i) => `user${i}@firma.example`).join(" ")
      const redacted = yield* redactFor(mine, many)
      assert.strictEqual(redacted.tokens.length, 5000)
      assert.strictEqual(yield* rehydrateFor(mine, redacted.text), many)
      const rows = yield* sql<{ count: number }>`SELECT count(DISTINCT xmin::text)::int AS count
        FROM tenant_zeta.redactions WHERE key_id = ${mine.keyId}`
      assert.strictEqual(rows[0]!.count, 1)
    })
  )

  it.effect("forgets after 24 hours, and deletes what expired", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const store = yield* RedactionStore
      const mine = owner("acme")
      const redacted = yield* redactFor(mine, text)
      yield* TestClock.adjust("23 hours")
      assert.strictEqual(yield* rehydrateFor(mine, redacted.text), text)
      yield* TestClock.adjust("61 minutes")
      assert.strictEqual(yield* rehydrateFor(mine, redacted.text), redacted.text)
      yield* store.sweep
      const rows = yield* sql<{ count: number }>`SELECT count(*)::int AS count FROM tenant_acme.redactions`
      assert.strictEqual(rows[0]!.count, 0)
    })
  )
})
