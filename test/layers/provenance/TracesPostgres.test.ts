import { assert, describe, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { uuidv7 } from "#domain/ids.ts"
import * as TracesPostgres from "#layers/provenance/TracesPostgres.ts"
import { Provenance, type ProvenanceEntry } from "#services/provenance/Provenance.ts"
import { Traces } from "#services/provenance/Traces.ts"
import { administrationBase } from "#test/support/administration.ts"

const entry = (action: string, requestId: string | null, createdAt: number, actor = "master_key"): ProvenanceEntry => ({
  action,
  actor,
  resourceType: "model_call",
  resourceId: "",
  requestId,
  payload: { request_id: requestId },
  createdAt
})

const page = (limit = 100, offset = 0) => ({ limit, offset })

describe("TracesPostgres", () => {
  layer(TracesPostgres.layer.pipe(Layer.provideMerge(administrationBase())))("with tenants", (it) => {
    it.effect("shows model calls, UDFs, evaluations and promotions, and nothing else", () =>
      Effect.gen(function* () {
        const traces = yield* Traces
        const provenance = yield* Provenance
        yield* provenance.append("acme", [
          entry("gen_ai.chat", "r1", 1000),
          entry("key.created", "r2", 2000),
          entry("udf.ai_complete", "r1", 3000),
          entry("eval.promotion.decided", null, 4000),
          entry("eval.promotion.denied", "r3", 5000),
          entry("gen_ai", "r3", 6000),
          entry("gen_ai.chat", "r4", 7000),
          entry("gen_ai.chat", "r1", 8000)
        ])
        const found = yield* traces.list("acme", page())
        assert.deepStrictEqual(
          found.map(({ action, sequenceNumber }) => [sequenceNumber, action]),
          [
            [8, "gen_ai.chat"],
            [7, "gen_ai.chat"],
            [4, "eval.promotion.decided"],
            [3, "udf.ai_complete"],
            [1, "gen_ai.chat"]
          ]
        )
        assert.deepStrictEqual(yield* traces.list("acme", page(2, 1)), found.slice(1, 3))
        assert.deepStrictEqual(yield* traces.list("globex", page()), [])
        for (const event of found) assert.deepStrictEqual(yield* traces.find("acme", event.id), event)
        const code = (tenant: string, id: string) =>
          Effect.map(Effect.flip(traces.find(tenant, id)), (error) => error.code)
        assert.strictEqual(yield* code("globex", found[0]!.id), "resource_not_found")
        assert.strictEqual(yield* code("acme", uuidv7(8000)), "resource_not_found")
        const sessions = yield* traces.sessions("acme", page())
        assert.deepStrictEqual(
          sessions.map(({ actions, endedAt, events, requestId, startedAt }) => [
            requestId,
            startedAt,
            endedAt,
            events,
            actions
          ]),
          [
            ["r4", 7000, 7000, 1, ["gen_ai.chat"]],
            ["r1", 1000, 8000, 3, ["gen_ai.chat", "udf.ai_complete"]]
          ]
        )
        assert.deepStrictEqual(yield* traces.sessions("acme", page(1, 1)), sessions.slice(1))
      })
    )
  })

  layer(TracesPostgres.layer.pipe(Layer.provideMerge(administrationBase([]))))("without tenants", (it) => {
    it.effect("tells the tenants of one chain apart by their keys", () =>
      Effect.gen(function* () {
        const traces = yield* Traces
        const provenance = yield* Provenance
        const sql = yield* SqlClient.SqlClient
        const keys = { "": uuidv7(1), one: uuidv7(2), two: uuidv7(3) }
        for (const [tenant, id] of Object.entries(keys)) {
          yield* sql`INSERT INTO public.api_keys (id, tenant, token_hash, token_hint, created_by)
            VALUES (${id}, ${tenant}, ${Buffer.from(id)}, '', 'test')`
        }
        yield* provenance.append("", [
          entry("gen_ai.chat", "shared", 1000, `key:${keys.one}`),
          entry("gen_ai.chat", "shared", 2000, `key:${keys.two}`),
          entry("gen_ai.chat", "own", 3000, `key:${keys[""]}`),
          entry("gen_ai.chat", "own", 4000)
        ])
        const times = (tenant: string) =>
          Effect.map(traces.list(tenant, page()), (found) => found.map(({ createdAt }) => createdAt))
        assert.deepStrictEqual(yield* times("one"), [1000])
        assert.deepStrictEqual(yield* times("two"), [2000])
        assert.deepStrictEqual(yield* times(""), [4000, 3000])
        const [session, ...others] = yield* traces.sessions("two", page())
        assert.deepInclude(session, { requestId: "shared", startedAt: 2000, events: 1 })
        assert.deepStrictEqual(others, [])
        const [foreign] = yield* traces.list("one", page())
        assert.strictEqual(
          yield* Effect.map(Effect.flip(traces.find("two", foreign!.id)), (error) => error.code),
          "resource_not_found"
        )
      })
    )
  })
})
