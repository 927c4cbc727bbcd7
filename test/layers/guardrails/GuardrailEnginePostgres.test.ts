import { assert, layer } from "@effect/vitest"
import { Effect, Fiber, Layer, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import { Unavailable } from "#domain/errors.ts"
import type { JsonObject } from "#domain/json.ts"
import { uuidv7 } from "#domain/ids.ts"
import * as GuardrailEnginePostgres from "#layers/guardrails/GuardrailEnginePostgres.ts"
import * as SecretsAesGcm from "#layers/security/SecretsAesGcm.ts"
import * as ChangeFeedPostgres from "#layers/storage/ChangeFeedPostgres.ts"
import * as WorkerThreadsNode from "#layers/workers/WorkerThreadsNode.ts"
import { GuardrailEngine } from "#services/guardrails/GuardrailEngine.ts"
import { GuardrailModels } from "#services/guardrails/GuardrailModels.ts"
import { GuardrailWebhooks } from "#services/guardrails/GuardrailWebhooks.ts"
import { WorkerThreads } from "#services/workers/WorkerThreads.ts"
import { instanceSecrets } from "#test/support/guardrails.ts"
import { testDatabase } from "#test/support/Postgres.ts"

interface Row {
  readonly tenant?: string
  readonly organization?: string
  readonly name: string
  readonly type: string
  readonly mode?: string
  readonly config: JsonObject
}

const insert = (row: Row) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const id = uuidv7(Date.now())
    yield* sql`INSERT INTO public.guardrails (id, tenant, organization_id, guardrail_name, guardrail_type, mode, config, created_by)
      VALUES (${id}, ${row.tenant ?? ""}, ${row.organization ?? null}, ${row.name}, ${row.type}, ${row.mode ?? "block"},
        ${JSON.stringify(row.config)}::text::jsonb, 'test')`
    return id
  })

const until = <E, R>(condition: Effect.Effect<boolean, E, R>) =>
  condition.pipe(
    Effect.flatMap((holds) => (holds ? Effect.void : Effect.fail("not yet" as const))),
    Effect.retry(Schedule.max([Schedule.spaced("10 millis"), Schedule.recurs(300)]))
  )

const engineOf = (tenant: string, organization: string | null) =>
  Effect.map(GuardrailEngine, (engine) => engine.policy(tenant, organization))

const nobody = Layer.mergeAll(
  Layer.mock(GuardrailModels, {}),
  Layer.mock(GuardrailWebhooks, {}),
  SecretsAesGcm.layer.pipe(Layer.provide(instanceSecrets()))
)

const environment = Layer.mergeAll(ChangeFeedPostgres.layer, WorkerThreadsNode.layer, nobody).pipe(
  Layer.provideMerge(testDatabase())
)

const overloaded = new Unavailable({ code: "overloaded", message: "full" })
const noThreads = Layer.succeed(WorkerThreads, { open: () => Effect.succeed({ run: () => Effect.fail(overloaded) }) })

layer(environment, { excludeTestServices: true })("GuardrailEngine over PostgreSQL", (it) => {
  it.effect("binds instance, tenant and organization, and sees a change that another process makes", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      assert.isUndefined(yield* engineOf("", null))
      const id = yield* insert({ name: "everybody", type: "deny_list", config: { words: ["orion"] } })
      yield* insert({ tenant: "a", name: "tenant-a", type: "regex", config: { patterns: ["x\\d"] } })
      yield* insert({ tenant: "a", organization: "o", name: "org-o", type: "length", config: { max_words: 3 } })
      yield* insert({ organization: "p", name: "org-p", type: "length", config: { max_words: 3, stage: "post" } })
      yield* until(Effect.map(engineOf("", "p"), (policy) => policy?.post === true))
      const names = (tenant: string, organization: string | null) =>
        Effect.map(engineOf(tenant, organization), (policy) => policy?.names)
      assert.deepStrictEqual(yield* names("", null), ["everybody"])
      assert.deepStrictEqual(yield* names("b", "o"), ["everybody"])
      assert.deepStrictEqual(yield* names("a", null), ["everybody", "tenant-a"])
      assert.deepStrictEqual(yield* names("a", "other"), ["everybody", "tenant-a"])
      assert.deepStrictEqual(yield* names("a", "o"), ["everybody", "tenant-a", "org-o"])
      assert.deepStrictEqual(yield* names("", "p"), ["everybody", "org-p"])
      assert.isTrue((yield* engineOf("", "p"))?.wholeAnswer)
      assert.isFalse((yield* engineOf("a", "o"))?.post)

      const verdict = yield* (yield* engineOf("a", null))!.check("pre", ["about Orion", "x1"])
      assert.strictEqual(verdict.blocked?.param, "everybody")
      assert.deepStrictEqual(
        verdict.events.map((event) => [event.guardrailName, event.status]),
        [
          ["everybody", "blocked"],
          ["tenant-a", "blocked"]
        ]
      )
      yield* sql`UPDATE public.guardrails SET enabled = false WHERE id = ${id}`
      yield* until(Effect.map(engineOf("", null), (policy) => policy === undefined))
      yield* sql`DELETE FROM public.guardrails`
      yield* until(Effect.map(engineOf("a", "o"), (policy) => policy === undefined))
    }).pipe(Effect.provide(GuardrailEnginePostgres.layer))
  )

  it.effect("checks large texts in a thread with the same verdict, and small ones in microseconds", () =>
    Effect.gen(function* () {
      const engine = yield* GuardrailEngine
      const policy = engine.only({ id: "1", name: "mask", type: "pii", mode: "block", config: { action: "mask" } })
      const filler = "Nothing to see here, move on. ".repeat(35_000)
      const large = yield* policy.check("pre", [filler, `${filler} a@b.example`])
      assert.isTrue(large.texts[1]!.endsWith("<EMAIL>"))
      assert.strictEqual(large.events[0]!.status, "masked")
      const given = [filler]
      const passed = yield* policy.check("pre", given)
      assert.strictEqual(passed.texts, given)

      const small = ["Please summarise the quarterly report of the northern region in three sentences."]
      const deny = engine.only({
        id: "2",
        name: "d",
        type: "deny_list",
        mode: "block",
        config: { words: ["orion", "x y"] }
      })
      const time = (check: () => void) => {
        for (let i = 0; i < 3000; i++) check()
        const start = performance.now()
        for (let i = 0; i < 3000; i++) check()
        return ((performance.now() - start) / 3000) * 1000
      }
      assert.isBelow(
        time(() => Effect.runSync(deny.check("pre", small))),
        50
      )
      assert.isBelow(
        time(() => Effect.runSync(policy.check("pre", small))),
        100
      )
      assert.isUndefined((yield* deny.check("pre", small)).blocked)
    }).pipe(Effect.provide(GuardrailEnginePostgres.layer))
  )

  it.effect("moves a pattern that turns out slow off the event loop", () =>
    Effect.gen(function* () {
      const engine = yield* GuardrailEngine
      const policy = engine.only({
        id: "1",
        name: "slow",
        type: "regex",
        mode: "block",
        config: { pattern: "x.{20}[yw]" }
      })
      let seed = 1
      const letter = () => {
        seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0
        return seed > 2 ** 31 ? "x" : "z"
      }
      // How long the event loop is held until the check either ends or has gone to the thread.
      const held: Array<number> = []
      for (let i = 0; i < 12; i++) {
        const text = [Array.from({ length: 8000 }, letter).join("")]
        const start = performance.now()
        const fiber = yield* Effect.forkChild(policy.check("pre", text), { startImmediately: true })
        held.push(performance.now() - start)
        assert.strictEqual((yield* Fiber.join(fiber)).events[0]!.status, "passed")
      }
      assert.isAbove(held[0]!, 2, "the first is checked on the event loop, or this proves nothing")
      assert.isBelow(Math.min(...held.slice(6)), 1)
    }).pipe(Effect.provide(GuardrailEnginePostgres.layer))
  )

  it.effect("validates drafts", () =>
    Effect.gen(function* () {
      const engine = yield* GuardrailEngine
      const problem = yield* Effect.flip(
        engine.validate({ name: "x", type: "regex", mode: "block", config: { patterns: ["("] } })
      )
      assert.strictEqual(problem.param, "config.patterns.0")
      const complete = yield* engine.validate({ name: "no secrets", type: "", mode: "log", config: {} })
      assert.deepStrictEqual(complete, { name: "no secrets", type: "secrets", mode: "log", config: {} })
    }).pipe(Effect.provide(GuardrailEnginePostgres.layer))
  )
})

layer(environment, { excludeTestServices: true })("GuardrailEngine whose thread is overloaded", (it) => {
  it.effect("fails closed, and open where told so", () =>
    Effect.gen(function* () {
      const engine = yield* GuardrailEngine
      const text = ["word ".repeat(10_000)]
      const of = (config: JsonObject, mode: "log" | "block" = "block") =>
        engine.only({ id: "1", name: "g", type: "deny_list", mode, config: { words: ["x"], ...config } })
      const closed = yield* of({}).check("pre", text)
      assert.strictEqual(closed.blocked?.param, "g")
      assert.strictEqual(closed.events[0]!.status, "error")
      assert.isUndefined((yield* of({ fail_open: true }).check("pre", text)).blocked)
      assert.isUndefined((yield* of({}, "log").check("pre", text)).blocked)
    }).pipe(Effect.provide(GuardrailEnginePostgres.layer.pipe(Layer.provide(noThreads))))
  )
})
