import { createHash } from "node:crypto"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import type { JsonObject } from "#domain/json.ts"
import { Provenance, type ProvenanceEntry } from "#services/provenance/Provenance.ts"
import { testDatabase } from "#test/support/Postgres.ts"
import { underUsage } from "#test/support/usage.ts"

const entry = (payload: JsonObject, more: Partial<ProvenanceEntry> = {}): ProvenanceEntry => ({
  action: "key.created",
  actor: "user:ada",
  resourceType: "key",
  resourceId: "k1",
  requestId: null,
  payload,
  createdAt: 1_750_000_000_000,
  ...more
})

const sha256 = (text: string) => createHash("sha256").update(text).digest("hex")

const database = (slugs: ReadonlyArray<string> = []) => underUsage(slugs).pipe(Layer.provideMerge(testDatabase()))

describe("ProvenancePostgres", () => {
  it.effect("chains canonical payloads without gaps", () =>
    Effect.gen(function* () {
      const provenance = yield* Provenance
      const sql = yield* SqlClient.SqlClient
      yield* provenance.append("", [entry({ b: 1.5, a: "x" }), entry({})])
      yield* provenance.append("", [])
      yield* sql.withTransaction(provenance.append("", [entry({ z: [true, null, 1e21] })]))
      const first = sha256('{"a":"x","b":1.5}')
      const second = sha256(`{}${first}`)
      const third = sha256(`{"z":[true,null,1e+21]}${second}`)
      assert.deepStrictEqual(
        yield* sql`SELECT sequence_number, payload_hash, actor, created_at FROM provenance_entries ORDER BY 1`,
        [first, second, third].map((payload_hash, index) => ({
          sequence_number: BigInt(index + 1),
          payload_hash,
          actor: "user:ada",
          created_at: new Date(1_750_000_000_000)
        }))
      )
      assert.deepStrictEqual(yield* provenance.verify(""), { entries: 3, broken: undefined })
    }).pipe(Effect.provide(database()))
  )

  it.effect("leaves no gap when a transaction is rolled back", () =>
    Effect.gen(function* () {
      const provenance = yield* Provenance
      const sql = yield* SqlClient.SqlClient
      yield* provenance.append("", [entry({ n: 1 })])
      yield* Effect.flip(
        sql.withTransaction(Effect.andThen(provenance.append("", [entry({ n: 2 })]), Effect.fail("no" as const)))
      )
      yield* provenance.append("", [entry({ n: 3 })])
      assert.deepStrictEqual(yield* provenance.verify(""), { entries: 2, broken: undefined })
    }).pipe(Effect.provide(database()))
  )

  it.live("stays whole when many append at once, each tenant by itself", () =>
    Effect.gen(function* () {
      const provenance = yield* Provenance
      yield* Effect.forEach(
        Array.from({ length: 60 }, (_, index) => index),
        (index) => provenance.append(index % 3 === 0 ? "acme" : "", [entry({ index }), entry({ index, again: true })]),
        { concurrency: 5 }
      )
      assert.deepStrictEqual(yield* provenance.verify("acme"), { entries: 40, broken: undefined })
      assert.deepStrictEqual(yield* provenance.verify(""), { entries: 80, broken: undefined })
    }).pipe(Effect.provide(database(["acme"])))
  )

  it.effect("verifies across pages, and whatever a payload holds", () =>
    Effect.gen(function* () {
      const provenance = yield* Provenance
      const odd = ["\0", "\ud800", "\\u0000", "€😀\u2028", "\u001f\b\f", '"', "\ufffd"]
      const numbers = [-0, 5e-324, 1.7976931348623157e308, 1e21, 0.1, 123456789.125, -1e-7]
      const entries = Array.from({ length: 2500 }, (_, index) =>
        entry({ text: odd[index % odd.length]!, number: numbers[index % numbers.length]!, [odd[index % 2]!]: index })
      )
      yield* provenance.append("", entries)
      assert.deepStrictEqual(yield* provenance.verify(""), { entries: 2500, broken: undefined })
    }).pipe(Effect.provide(database()))
  )

  it.effect("finds the entry that was changed, removed, or cut off the end", () =>
    Effect.gen(function* () {
      const provenance = yield* Provenance
      const sql = yield* SqlClient.SqlClient
      const tamper = (change: Effect.Effect<unknown, unknown>) =>
        sql
          .withTransaction(
            Effect.flatMap(Effect.andThen(change, provenance.verify("")), (report) => Effect.fail({ report }))
          )
          .pipe(Effect.catch((failure) => Effect.succeed("report" in (failure as object) ? failure : undefined)))
      yield* provenance.append(
        "",
        Array.from({ length: 10 }, (_, index) => entry({ index }))
      )
      assert.deepStrictEqual(
        yield* tamper(sql`UPDATE provenance_entries SET payload = '{"index": 99}' WHERE sequence_number = 4`),
        {
          report: { entries: 3, broken: { sequenceNumber: 4, why: "changed" as const } }
        }
      )
      assert.deepStrictEqual(yield* tamper(sql`DELETE FROM provenance_entries WHERE sequence_number = 7`), {
        report: { entries: 6, broken: { sequenceNumber: 7, why: "missing" as const } }
      })
      assert.deepStrictEqual(yield* tamper(sql`DELETE FROM provenance_entries WHERE sequence_number = 10`), {
        report: { entries: 9, broken: { sequenceNumber: 10, why: "missing" as const } }
      })
      assert.deepStrictEqual(yield* provenance.verify(""), { entries: 10, broken: undefined })
    }).pipe(Effect.provide(database()))
  )
})
