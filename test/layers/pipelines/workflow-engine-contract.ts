/** The contract of workflow engines. */
import { assert, layer } from "@effect/vitest"
import { Deferred, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { callbackEvents } from "#domain/events.ts"
import { masterKeyPrincipal } from "#domain/principal.ts"
import * as PipelineRunsPostgres from "#layers/pipelines/PipelineRunsPostgres.ts"
import * as WorkflowEngineOff from "#layers/pipelines/WorkflowEngineOff.ts"
import { StepFailed } from "#services/pipelines/Operators.ts"
import { PipelineRuns } from "#services/pipelines/PipelineRuns.ts"
import { type RunKey, WorkflowEngine } from "#services/pipelines/WorkflowEngine.ts"
import {
  acme,
  administrator,
  Definitions,
  Doings,
  eventsOf,
  type PipelineBase,
  pipelineBase,
  settled,
  startRun
} from "#test/support/pipelines.ts"

/** An engine that the contract is held against. */
export interface EngineUnderTest {
  readonly name: string
  /** One process with the engine, and what works on its runs. */
  readonly engine: (
    doings: Doings,
    definitions: Definitions
  ) => Layer.Layer<PipelineRuns | WorkflowEngine, never, PipelineBase>
  /** The same engine, out of reach. */
  readonly unreachable: Layer.Layer<WorkflowEngine, never, PipelineBase>
  /** In how many days the engine wakes a run that nobody works on meanwhile; waits until it is put down. */
  readonly wakesIn: (runId: string) => Effect.Effect<number, unknown, PipelineBase>
  /** Whether the engine will do anything for a run that has no row. */
  readonly knows: (runId: string) => Effect.Effect<boolean, unknown, PipelineBase>
}

const flaky = (retryable: boolean) => new StepFailed({ code: "upstream_error", message: "no", retryable })

const reviewed = `
name: reviewed
steps:
  - id: check
    operator: human_review
    with: {title: "Look at \${inputs.what}", reviewer_role: editor}
    timeout: 30d
  - {id: after, operator: transform, needs: check, with: done}
outputs: {after: "\${steps.after.output}"}
`

const oneStep = "name: p\nsteps:\n- {id: a, operator: transform, with: 1}"

export const workflowEngineContract = (under: EngineUnderTest): void => {
  const doings = new Doings()
  const definitions = new Definitions()

  layer(under.engine(doings, definitions).pipe(Layer.provideMerge(pipelineBase())), {
    timeout: 60_000,
    excludeTestServices: true
  })(`WorkflowEngine, ${under.name}`, (it) => {
    it.effect("runs steps in the order of their needs, with values handed on", () =>
      Effect.gen(function* () {
        const id = yield* startRun(
          definitions.add(`
    name: sum
    inputs: {type: object, required: [n], properties: {n: {type: integer}}}
    steps:
      - {id: c, operator: transform, with: "\${steps.a.output + steps.b.output}"}
      - {id: a, operator: transform, with: "\${inputs.n + 1}"}
      - {id: b, operator: transform, with: "\${inputs.n * 10}"}
      - {id: d, operator: transform, with: never, when: "\${steps.c.output < 0}"}
      - {id: e, operator: transform, with: neither, needs: d}
    outputs: {sum: "\${steps.c.output}", skipped: "\${steps.d.output}"}
    `),
          { n: 4 }
        )
        const run = yield* settled(id)
        assert.strictEqual(run.status, "completed")
        assert.deepStrictEqual(run.outputs, { sum: 45, skipped: null })
        const events = yield* eventsOf(id)
        assert.strictEqual(events[0]?.type, "run_started")
        assert.strictEqual(events.at(-1)?.type, "run_completed")
        assert.deepStrictEqual(
          events.flatMap((event) => (event.type === "step_skipped" ? [[event.step, event.reason]] : [])),
          [
            ["d", "condition"],
            ["e", "needs"]
          ]
        )
      })
    )

    it.effect("takes one way at a branch and joins again", () =>
      Effect.gen(function* () {
        const definition = definitions.add(`
    name: ways
    steps:
      - id: route
        operator: branch
        with:
          cases: [{when: "\${inputs.n > 10}", steps: [big]}, {when: "\${inputs.n > 5}", steps: [middle]}]
          else: [small]
      - {id: big, operator: transform, with: big}
      - {id: middle, operator: transform, with: middle}
      - {id: small, operator: transform, with: small}
      - {id: join, operator: transform, with: "\${[steps.big.output, steps.middle.output, steps.small.output][$]}"}
    outputs: {way: "\${steps.join.output}"}
    `)
        for (const [n, way] of [
          [11, "big"],
          [6, "middle"],
          [1, "small"]
        ] as const) {
          const run = yield* settled(yield* startRun(definition, { n }))
          assert.strictEqual(run.status, "completed", JSON.stringify(run.error))
          assert.deepStrictEqual(run.outputs, { way })
        }
      })
    )

    it.effect("tries a failing step again as its policy says, and no other", () =>
      Effect.gen(function* () {
        let tries = 0
        doings.byModel.set("flaky", () =>
          Effect.suspend(() => (++tries < 3 ? Effect.fail(flaky(true)) : Effect.succeed(tries)))
        )
        doings.byModel.set("broken", () => Effect.fail(flaky(true)))
        doings.byModel.set("refused", () => Effect.fail(flaky(false)))
        doings.byModel.set("dying", () => Effect.die(new Error("a bug")))
        doings.byModel.set("slow", () => Effect.never)
        const one = (model: string, more = "") =>
          definitions.add(
            `name: p\nsteps:\n- {id: a, operator: chat, with: {model: ${model}, prompt: x}, retry: {attempts: 3, delay: 20ms}${more}}`
          )
        assert.strictEqual((yield* settled(yield* startRun(one("flaky")))).status, "completed")
        assert.strictEqual(tries, 3)
        const started = Effect.fnUntraced(function* (model: string, more = "") {
          const id = yield* startRun(one(model, more))
          const run = yield* settled(id)
          assert.strictEqual(run.status, "failed")
          const events = yield* eventsOf(id)
          return { error: run.error, tries: events.filter(({ type }) => type === "step_started").length }
        })
        assert.deepStrictEqual(yield* started("broken"), {
          error: { code: "upstream_error", message: "no", step: "a" },
          tries: 3
        })
        assert.strictEqual((yield* started("refused")).tries, 1)
        const { error } = yield* started("dying")
        assert.strictEqual(error?.code, "internal_error")
        assert.notInclude(error?.message, "bug")
        assert.deepInclude(yield* started("slow", ", timeout: 30ms"), { tries: 3 })
      })
    )

    it.effect("maps over 1,000 items, some of which need a second try, in order and each once", () =>
      Effect.gen(function* () {
        const seen = new Map<number, number>()
        let atOnce = 0
        let most = 0
        doings.byModel.set("item", ({ input }) =>
          Effect.gen(function* () {
            const { n } = input as { readonly n: number }
            most = Math.max(most, ++atOnce)
            yield* Effect.sleep(2)
            atOnce--
            const times = (seen.get(n) ?? 0) + 1
            seen.set(n, times)
            return n % 100 === 7 && times === 1 ? yield* flaky(true) : n * 2
          })
        )
        const id = yield* startRun(
          definitions.add(`
    name: many
    steps:
      - id: each
        operator: map
        with:
          items: "\${[0..999]}"
          concurrency: 32
          step: {operator: chat, with: {model: item, prompt: x, n: "\${item}"}, retry: {delay: 5ms}}
    outputs: {sum: "\${$sum(steps.each.output)}", last: "\${steps.each.output[999]}"}
    `)
        )
        const run = yield* settled(id)
        assert.strictEqual(run.status, "completed", JSON.stringify(run.error))
        assert.deepStrictEqual(run.outputs, { sum: 999_000, last: 1998 })
        assert.isAtMost(most, 32)
        assert.isAbove(most, 8)
        assert.strictEqual(
          [...seen.values()].reduce((sum, times) => sum + times, 0),
          1010
        )
      })
    )

    it.effect("a review waits, is decided once, and its rejection fails the run unless a step reads it", () =>
      Effect.gen(function* () {
        const runs = yield* PipelineRuns
        const definition = definitions.add(reviewed)
        const id = yield* startRun(definition, { what: "this" })
        yield* settled(id, ["awaiting_review"])
        const [pending] = yield* runs.awaitingReview(acme, undefined)
        assert.strictEqual(pending?.run.id, id)
        assert.deepInclude(pending?.reviews[0], { step: "check", title: "Look at this", reviewerRole: "editor" })
        const approve = runs.signal(acme, id, {
          name: "human_review_decision",
          payload: { approved: true, reason: "ok" }
        })
        const results = yield* Effect.all([Effect.exit(approve), Effect.exit(approve)], { concurrency: 2 })
        assert.deepStrictEqual(results.map(({ _tag }) => _tag).sort(), ["Failure", "Success"])
        assert.deepStrictEqual((yield* settled(id)).outputs, { after: "done" })
        assert.deepStrictEqual(yield* runs.awaitingReview(acme, undefined), [])

        const rejected = yield* startRun(definition, { what: "that" })
        yield* settled(rejected, ["awaiting_review"])
        yield* runs.signal(acme, rejected, {
          name: "human_review_decision",
          payload: { approved: false, reason: "bad" }
        })
        const { error, status } = yield* settled(rejected)
        assert.deepStrictEqual([status, error?.code, error?.step], ["failed", "review_rejected", "check"])

        const handled = yield* startRun(
          definitions.add(`
    name: handled
    steps:
      - {id: check, operator: human_review}
      - {id: sorry, operator: transform, when: "\${$not(steps.check.output.approved)}", with: "\${steps.check.output.reason}"}
    outputs: {reason: "\${steps.sorry.output}"}
    `)
        )
        yield* settled(handled, ["awaiting_review"])
        yield* runs.signal(acme, handled, {
          name: "human_review_decision",
          payload: { approved: false, reason: "bad" }
        })
        assert.deepStrictEqual((yield* settled(handled)).outputs, { reason: "bad" })
      })
    )

    it.effect("cancels gracefully: what runs cleans up, nothing later starts", () =>
      Effect.gen(function* () {
        const runs = yield* PipelineRuns
        const begun = yield* Deferred.make<void>()
        let cleaned = false
        doings.byModel.set("long", () =>
          Effect.andThen(Deferred.succeed(begun, undefined), Effect.never).pipe(
            Effect.onInterrupt(() => Effect.sync(() => void (cleaned = true)))
          )
        )
        const source =
          "name: p\nsteps:\n- {id: a, operator: chat, with: {model: long, prompt: x}}\n- {id: b, operator: transform, with: 1, needs: a}"
        const id = yield* startRun(definitions.add(source))
        yield* Deferred.await(begun)
        yield* runs.cancel(acme, id)
        assert.strictEqual((yield* settled(id)).status, "cancelled")
        assert.isTrue(cleaned)
        assert.isFalse((yield* eventsOf(id)).some((event) => "step" in event && event.step === "b"))
        yield* runs.cancel(acme, id)
        yield* runs.terminate(acme, id, "")
        assert.strictEqual((yield* settled(id)).status, "cancelled")

        const waiting = yield* startRun(definitions.add(reviewed), { what: "x" })
        yield* settled(waiting, ["awaiting_review"])
        yield* runs.cancel(acme, waiting)
        assert.strictEqual((yield* settled(waiting)).status, "cancelled")
        const late = yield* Effect.flip(
          runs.signal(acme, waiting, { name: "human_review_decision", payload: { approved: true } })
        )
        assert.strictEqual(late.code, "invalid_state")
      })
    )

    it.effect("terminates at once", () =>
      Effect.gen(function* () {
        const runs = yield* PipelineRuns
        const begun = yield* Deferred.make<void>()
        const ended = yield* Deferred.make<void>()
        doings.byModel.set("longer", () =>
          Effect.andThen(Deferred.succeed(begun, undefined), Effect.never).pipe(
            Effect.onInterrupt(() => Deferred.succeed(ended, undefined))
          )
        )
        const id = yield* startRun(
          definitions.add("name: p\nsteps:\n- {id: a, operator: chat, with: {model: longer, prompt: x}}")
        )
        yield* Deferred.await(begun)
        yield* runs.terminate(acme, id, "enough")
        assert.strictEqual((yield* runs.find(acme, id)).status, "terminated")
        yield* Deferred.await(ended)
        assert.deepInclude((yield* eventsOf(id)).at(-1), { type: "run_terminated", reason: "enough" })
      })
    )

    it.effect("another tenant's runs are absent, and naming a tenant is for few and audited", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const runs = yield* PipelineRuns
        const id = yield* startRun(definitions.add("name: p\nsteps:\n- {id: a, operator: transform, with: 1}"))
        yield* settled(id)
        const globex = administrator("globex")
        for (const action of [
          runs.find(globex, id),
          runs.cancel(globex, id),
          runs.terminate(globex, id, ""),
          runs.history(globex, id, 0, 10),
          runs.signal(globex, id, { name: "human_review_decision", payload: { approved: true } })
        ]) {
          assert.strictEqual((yield* Effect.flip(Effect.asVoid(action))).code, "resource_not_found")
        }
        const all = { tenant: "acme", status: undefined, definitionId: undefined, limit: 50, offset: 0 }
        assert.strictEqual((yield* Effect.flip(runs.list(globex, all))).code, "tenant_override_forbidden")
        const overrides = Effect.map(
          sql<{ readonly n: number }>`SELECT count(*)::int AS n FROM tenant_acme.provenance_entries
              WHERE action = 'pipeline_run.tenant_override'`,
          ([row]) => row!.n
        )
        assert.strictEqual(yield* overrides, 0)
        assert.include(
          (yield* runs.list(masterKeyPrincipal, all)).map((run) => run.id),
          id
        )
        const auditor = administrator("globex", { entitlements: new Set(["cross_tenant_admin"]) })
        assert.isNotEmpty(yield* runs.list(auditor, all))
        assert.strictEqual(yield* overrides, 2)
        assert.isEmpty(yield* runs.list(acme, { ...all, tenant: undefined, status: "no such status" }))
        const organizationAdmin = administrator("acme", { role: "org_admin", organizationId: "o1" })
        assert.isEmpty(yield* runs.list(organizationAdmin, { ...all, tenant: undefined }))
        assert.strictEqual((yield* Effect.flip(runs.find(organizationAdmin, id))).code, "resource_not_found")
      })
    )

    it.effect("tells callbacks of start, review, completion and failure", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const runs = yield* PipelineRuns
        yield* sql`INSERT INTO public.callbacks (id, tenant, whole_instance, url, events, sealed, encryption_key_id, created_by,
            created_at) VALUES (${crypto.randomUUID()}, 'acme', false, 'https://example.com', '{}', '\\x00', '', '', now())`
        const definition = definitions.add(reviewed)
        for (const approved of [true, false]) {
          const id = yield* startRun(definition, { what: "x" })
          yield* settled(id, ["awaiting_review"])
          yield* runs.signal(acme, id, { name: "human_review_decision", payload: { approved } })
          yield* settled(id)
        }
        const rows = yield* sql<{
          readonly body: string
        }>`SELECT body FROM public.callback_deliveries ORDER BY event_id`
        const told = rows.map(({ body }) => (JSON.parse(body) as { readonly type: string }).type)
        assert.deepStrictEqual(told.toSorted(), [
          "pipeline.run.awaiting_review",
          "pipeline.run.awaiting_review",
          "pipeline.run.completed",
          "pipeline.run.failed",
          "pipeline.run.started",
          "pipeline.run.started"
        ])
        for (const type of told) assert.include(callbackEvents, type)
      })
    )

    it.effect("waits 30 days for a retry or a human, with nobody at work", () =>
      Effect.gen(function* () {
        const runs = yield* PipelineRuns
        doings.byModel.set("monthly", () => Effect.fail(flaky(true)))
        const id = yield* startRun(
          definitions.add(
            "name: p\nsteps:\n- {id: a, operator: chat, with: {model: monthly, prompt: x}, retry: {attempts: 2, delay: 30d}}"
          )
        )
        const review = yield* startRun(definitions.add(reviewed), { what: "x" })
        yield* settled(review, ["awaiting_review"])
        for (const run of [id, review]) assert.approximately(yield* under.wakesIn(run), 30, 0.01)
        assert.deepStrictEqual(
          (yield* eventsOf(id)).map(({ type }) => type),
          ["run_started", "step_started", "step_failed"]
        )
        yield* runs.signal(acme, review, { name: "human_review_decision", payload: { approved: true } })
        assert.strictEqual((yield* settled(review)).status, "completed")
        yield* runs.cancel(acme, id)
        assert.strictEqual((yield* settled(id)).status, "cancelled")
      })
    )

    it.effect("history comes in pages, the same whenever it is asked for", () =>
      Effect.gen(function* () {
        const runs = yield* PipelineRuns
        const id = yield* startRun(
          definitions.add(
            `name: p\nsteps:\n${["a", "b", "c"].map((step) => `- {id: ${step}, operator: transform, with: 1}`).join("\n")}`
          )
        )
        yield* settled(id)
        const whole = yield* runs.history(acme, id, 0, 100)
        assert.deepStrictEqual(
          whole.map(({ sequence }) => sequence),
          whole.map((_, index) => index + 1)
        )
        assert.lengthOf(whole, 8)
        const pages = [yield* runs.history(acme, id, 0, 5), yield* runs.history(acme, id, 5, 5)]
        assert.deepStrictEqual(pages.flat(), whole)
        assert.isEmpty(yield* runs.history(acme, id, 8, 5))
      })
    )

    it.effect("creation is one transaction with its provenance entry; an engine that fails leaves nothing", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const rows = Effect.map(
          sql<{ readonly runs: number; readonly entries: number }>`SELECT
          (SELECT count(*)::int FROM tenant_globex.pipeline_runs) AS runs,
          (SELECT count(*)::int FROM tenant_globex.provenance_entries WHERE action = 'pipeline.run.start') AS entries`,
          ([row]) => row
        )
        const globex = administrator("globex")
        const definition = definitions.add(oneStep)
        const id = yield* startRun(definition, {}, globex)
        assert.deepStrictEqual(yield* rows, { runs: 1, entries: 1 })
        yield* settled(id)
        const over = <E>(engine: Layer.Layer<WorkflowEngine, E, PipelineBase>) =>
          startRun(definition, {}, globex).pipe(
            Effect.provide(PipelineRunsPostgres.layer.pipe(Layer.provide(engine), Layer.provide(definitions.layer)))
          )
        assert.strictEqual((yield* Effect.flip(over(WorkflowEngineOff.layer))).code, "workflow_engine_not_configured")
        const began = performance.now()
        assert.strictEqual((yield* Effect.flip(over(under.unreachable))).code, "workflow_engine_unavailable")
        assert.isBelow(performance.now() - began, 6000)
        assert.deepStrictEqual(yield* rows, { runs: 1, entries: 1 })
      })
    )

    it.effect("what was started in a transaction that fails afterwards comes to nothing", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const engine = yield* WorkflowEngine
        let started: RunKey | undefined
        const failing = Layer.succeed(WorkflowEngine, {
          ...engine,
          start: (key) =>
            Effect.andThen(engine.start(key), () => {
              started = key
              return Effect.die(new Error("the transaction fails after the start"))
            })
        })
        yield* Effect.exit(
          startRun(definitions.add(oneStep)).pipe(
            Effect.provide(PipelineRunsPostgres.layer.pipe(Layer.provide(failing), Layer.provide(definitions.layer)))
          )
        )
        const { runId } = started!
        for (let tries = 0; tries < 200 && (yield* under.knows(runId)); tries++) yield* Effect.sleep(20)
        assert.isFalse(yield* under.knows(runId))
        assert.isEmpty(yield* sql`SELECT 1 FROM tenant_acme.pipeline_runs WHERE id = ${runId}`)
        assert.isEmpty(yield* sql`SELECT 1 FROM tenant_acme.pipeline_run_events WHERE run_id = ${runId}`)
      })
    )
  })
}
