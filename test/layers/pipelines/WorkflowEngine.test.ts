/** The contract of workflow engines, held against the embedded one. */
import { assert, layer } from "@effect/vitest"
import { Clock, Deferred, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { callbackEvents } from "#domain/events.ts"
import { masterKeyPrincipal } from "#domain/principal.ts"
import * as WorkflowEngineOff from "#layers/pipelines/WorkflowEngineOff.ts"
import * as PipelineRunsPostgres from "#layers/pipelines/PipelineRunsPostgres.ts"
import { StepFailed } from "#services/pipelines/Operators.ts"
import { PipelineRuns } from "#services/pipelines/PipelineRuns.ts"
import { WorkflowEngine } from "#services/pipelines/WorkflowEngine.ts"
import {
  acme,
  administrator,
  Definitions,
  Doings,
  engine,
  eventsOf,
  openExecutions,
  pipelineBase,
  settled,
  startRun
} from "#test/support/pipelines.ts"

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

layer(pipelineBase(), { timeout: 60_000, excludeTestServices: true })("WorkflowEngine, embedded", (it) => {
  const doings = new Doings()
  const definitions = new Definitions()
  const engines = engine(doings, definitions)

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
      assert.strictEqual(yield* openExecutions, 0)
    }).pipe(Effect.provide(engines))
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
    }).pipe(Effect.provide(engines))
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
    }).pipe(Effect.provide(engines))
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
      assert.strictEqual(most, 32)
      assert.strictEqual(
        [...seen.values()].reduce((sum, times) => sum + times, 0),
        1010
      )
    }).pipe(Effect.provide(engines))
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
      yield* runs.signal(acme, rejected, { name: "human_review_decision", payload: { approved: false, reason: "bad" } })
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
      yield* runs.signal(acme, handled, { name: "human_review_decision", payload: { approved: false, reason: "bad" } })
      assert.deepStrictEqual((yield* settled(handled)).outputs, { reason: "bad" })
    }).pipe(Effect.provide(engines))
  )

  it.effect("sleeps for 30 days as a row, and wakes in another process", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      let tries = 0
      doings.byModel.set("monthly", () =>
        Effect.suspend(() => (++tries === 1 ? Effect.fail(flaky(true)) : Effect.succeed(tries)))
      )
      const before = Effect.gen(function* () {
        const id = yield* startRun(
          definitions.add(
            "name: p\nsteps:\n- {id: a, operator: chat, with: {model: monthly, prompt: x}, retry: {attempts: 2, delay: 30d}}"
          )
        )
        const review = yield* startRun(definitions.add(reviewed), { what: "x" })
        yield* settled(review, ["awaiting_review"])
        let asleep: ReadonlyArray<{ readonly days: number }> = []
        while (asleep.length < 2) {
          asleep = yield* sql<{ readonly days: number }>`SELECT
            extract(epoch FROM wake_at - now())::float8 / 86400 AS days FROM public.workflow_executions WHERE owner IS NULL`
        }
        for (const { days } of asleep) assert.approximately(days, 30, 0.01)
        return [id, review] as const
      })
      const [id, review] = yield* before.pipe(Effect.provide(engine(doings, definitions)))
      assert.strictEqual(tries, 1)
      const real = yield* Clock.Clock
      const later = 30 * 86_400_000 + 60_000
      // The same clock, 30 days on: sleeps take as long as ever.
      const shifted: Clock.Clock = Object.assign(Object.create(real) as Clock.Clock, {
        currentTimeMillisUnsafe: () => real.currentTimeMillisUnsafe() + later,
        currentTimeMillis: Effect.map(real.currentTimeMillis, (millis) => millis + later)
      })
      const after = Effect.gen(function* () {
        assert.strictEqual((yield* settled(id)).status, "completed")
        const { error, status } = yield* settled(review)
        assert.deepStrictEqual([status, error?.code], ["failed", "review_timeout"])
      })
      yield* after.pipe(Effect.provide(engine(doings, definitions)), Effect.provideService(Clock.Clock, shifted))
      assert.strictEqual(tries, 2)
      assert.strictEqual(yield* openExecutions, 0)
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
    }).pipe(Effect.provide(engines))
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
    }).pipe(Effect.provide(engines))
  )

  it.effect("three processes share 60 runs, and none runs a step twice", () =>
    Effect.gen(function* () {
      const counts = new Map<string, number>()
      const at = new Map<string, Set<number>>()
      const fleet = [0, 1, 2].map((process) => {
        const own = new Doings()
        own.byModel.set("shared", ({ requestId }) =>
          Effect.gen(function* () {
            counts.set(requestId, (counts.get(requestId) ?? 0) + 1)
            const run = requestId.split(".")[0]!
            at.set(run, (at.get(run) ?? new Set()).add(process))
            yield* Effect.sleep(20)
            return null
          })
        )
        return engine(own, definitions, { maxRuns: 4 })
      })
      const [first, ...others] = fleet
      yield* Effect.gen(function* () {
        for (const other of others) yield* Layer.build(other)
        const definition = definitions.add(
          `name: p\nsteps:\n${["a", "b", "c"].map((id) => `- {id: ${id}, operator: chat, with: {model: shared, prompt: x}}`).join("\n")}`
        )
        const ids = yield* Effect.forEach(Array.from({ length: 60 }), () => startRun(definition), { concurrency: 5 })
        for (const id of ids) assert.strictEqual((yield* settled(id)).status, "completed")
      }).pipe(Effect.provide(first!))
      assert.strictEqual(counts.size, 180)
      assert.deepStrictEqual(new Set(counts.values()), new Set([1]))
      assert.deepStrictEqual(new Set([...at.values()].map(({ size }) => size)), new Set([1]))
      assert.deepStrictEqual(new Set([...at.values()].flatMap((some) => [...some])), new Set([0, 1, 2]))
    })
  )

  it.effect("a run whose process shows no life goes on elsewhere, and what the old one writes does not count", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const begun = yield* Deferred.make<void>()
      const release = yield* Deferred.make<void>()
      const stuck = new Doings()
      stuck.byModel.set("twice", () =>
        Effect.as(
          Effect.andThen(Deferred.succeed(begun, undefined), Effect.uninterruptible(Deferred.await(release))),
          "old"
        )
      )
      const fresh = new Doings()
      fresh.byModel.set("twice", () => Effect.succeed("new"))
      yield* Effect.gen(function* () {
        const id = yield* startRun(
          definitions.add(
            'name: p\nsteps:\n- {id: a, operator: chat, with: {model: twice, prompt: x}}\noutputs: {by: "${steps.a.output}"}'
          )
        )
        yield* Deferred.await(begun)
        yield* Layer.build(engine(fresh, definitions))
        // As if its process had been stopped for longer than its lease.
        yield* sql`UPDATE public.workflow_executions SET lease_until = '-infinity'`
        assert.deepStrictEqual((yield* settled(id)).outputs, { by: "new" })
        yield* Deferred.succeed(release, undefined)
        yield* Effect.sleep(100)
        const events = yield* eventsOf(id)
        assert.deepStrictEqual(
          events.flatMap((event) => (event.type === "step_completed" ? [event.output] : [])),
          ["new"]
        )
      }).pipe(Effect.provide(engine(stuck, definitions, { leaseMs: 60_000 })))
    })
  )

  it.effect("creation is one transaction with its provenance entry; a failing engine leaves nothing", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const rows = Effect.map(
        sql<{ readonly runs: number; readonly entries: number }>`SELECT
          (SELECT count(*)::int FROM tenant_globex.pipeline_runs) AS runs,
          (SELECT count(*)::int FROM tenant_globex.provenance_entries WHERE action = 'pipeline.run.start') AS entries`,
        ([row]) => row
      )
      const globex = administrator("globex")
      const definition = definitions.add("name: p\nsteps:\n- {id: a, operator: transform, with: 1}")
      yield* Effect.gen(function* () {
        const id = yield* startRun(definition, {}, globex)
        assert.deepStrictEqual(yield* rows, { runs: 1, entries: 1 })
        yield* settled(id)
      }).pipe(Effect.provide(engines))
      const failing = (make: Layer.Layer<WorkflowEngine>) =>
        Effect.flip(startRun(definition, {}, globex)).pipe(
          Effect.provide(PipelineRunsPostgres.layer.pipe(Layer.provide(make), Layer.provide(definitions.layer)))
        )
      assert.strictEqual((yield* failing(WorkflowEngineOff.layer)).code, "workflow_engine_not_configured")
      const unreachable = Layer.mock(WorkflowEngine, {
        namespace: "n",
        refusal: undefined,
        workflowId: (id) => id,
        start: () =>
          Effect.map(WorkflowEngine, () => undefined).pipe(
            Effect.provide(WorkflowEngineOff.layer),
            Effect.andThen(Effect.die("unreachable"))
          )
      })
      yield* Effect.exit(failing(unreachable))
      assert.deepStrictEqual(yield* rows, { runs: 1, entries: 1 })
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
    }).pipe(Effect.provide(engines))
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
      const rows = yield* sql<{ readonly body: string }>`SELECT body FROM public.callback_deliveries ORDER BY event_id`
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
    }).pipe(Effect.provide(engines))
  )
})
