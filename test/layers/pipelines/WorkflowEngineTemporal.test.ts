/** The contract of workflow engines held against Temporal, and what only that one does. */
import { afterAll, assert, describe, layer } from "@effect/vitest"
import { Context, Deferred, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import * as WorkflowEngineTemporal from "#layers/pipelines/WorkflowEngineTemporal.ts"
import { PipelineRuns } from "#services/pipelines/PipelineRuns.ts"
import { WorkflowEngine } from "#services/pipelines/WorkflowEngine.ts"
import { workflowEngineContract } from "#test/layers/pipelines/workflow-engine-contract.ts"
import {
  acme,
  Definitions,
  Doings,
  engine as embeddedEngine,
  eventsOf,
  openExecutions,
  pipelineBase,
  settled,
  startRun
} from "#test/support/pipelines.ts"
import { temporalClient, temporalEngine, temporalOptions, temporalServer } from "#test/support/temporal.ts"

const server = await temporalServer()
const address = server.address ?? ""
const temporal = server.address === undefined ? undefined : await temporalClient(address)
const options = temporalOptions(address)

afterAll(async () => {
  await temporal?.close()
  await server.close()
})

const handle = (runId: string) => temporal!.handle(runId)

const review = "name: p\nsteps:\n- {id: check, operator: human_review}"

const waiting = (model: string, id = "a") => `- {id: ${id}, operator: chat, with: {model: ${model}, prompt: x}}`

describe.skipIf(temporal === undefined)(`Temporal ${server.skipped}`, () => {
  workflowEngineContract({
    name: "Temporal",
    engine: (doings, definitions) => temporalEngine(options, doings, definitions),
    unreachable: WorkflowEngineTemporal.layer({ ...options, address: "127.0.0.1:1" }),
    wakesIn: Effect.fnUntraced(function* (runId) {
      while (true) {
        const timers = yield* Effect.promise(() => temporal!.timers(runId))
        const found = yield* Effect.promise(() => temporal!.describe(runId))
        if (timers.length === 1 && (found?.raw.pendingActivities?.length ?? 0) === 0) return timers[0]!
        yield* Effect.sleep(100)
      }
    }),
    knows: (runId) =>
      Effect.map(
        Effect.promise(() => temporal!.describe(runId)),
        (found) => found?.status.name === "RUNNING"
      )
  })

  const doings = new Doings()
  const definitions = new Definitions()
  const own = temporalOptions(address)

  layer(temporalEngine(own, doings, definitions).pipe(Layer.provideMerge(pipelineBase())), {
    timeout: 60_000,
    excludeTestServices: true
  })("WorkflowEngine, Temporal only", (it) => {
    it.effect("a workflow that Temporal's own tools end shows in the row, whether or not somebody looks", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const ends = [
          ["terminated", (id: string) => handle(id).terminate("by hand")],
          ["cancelled", (id: string) => handle(id).cancel()]
        ] as const
        for (const [status, end] of ends) {
          const id = yield* startRun(definitions.add(review))
          yield* settled(id, ["awaiting_review"])
          yield* Effect.promise(() => end(id).then(() => {}))
          assert.strictEqual((yield* settled(id)).status, status)
        }
        const unseen = yield* startRun(definitions.add(review))
        yield* settled(unseen, ["awaiting_review"])
        yield* Effect.promise(() => handle(unseen).terminate("by hand"))
        let status: string | undefined
        for (let tries = 0; tries < 200 && status !== "terminated"; tries++) {
          yield* Effect.sleep(50)
          const [row] = yield* sql<{
            readonly status: string
          }>`SELECT status FROM tenant_acme.pipeline_runs WHERE id = ${unseen}`
          status = row?.status
        }
        assert.strictEqual(status, "terminated")
        assert.deepInclude((yield* eventsOf(unseen)).at(-1), { type: "run_terminated", actor: "temporal" })
        assert.isEmpty(yield* sql`SELECT 1 FROM tenant_acme.pipeline_reviews WHERE run_id = ${unseen}`)
      })
    )

    it.effect("a signal that comes from Temporal's own tools decides too", () =>
      Effect.gen(function* () {
        const id = yield* startRun(definitions.add(review))
        yield* settled(id, ["awaiting_review"])
        // Neither of these is a decision.
        yield* Effect.promise(() => handle(id).signal("human_review_decision"))
        yield* Effect.promise(() => handle(id).signal("human_review_decision", { approved: "yes" }))
        yield* Effect.promise(() => handle(id).signal("human_review_decision", { approved: false, reason: "no" }))
        assert.deepInclude(yield* settled(id), {
          status: "failed",
          error: { code: "review_rejected", message: "The review was rejected: no", step: "check" }
        })
        const decided = (yield* eventsOf(id)).filter(({ type }) => type === "review_decided")
        assert.deepStrictEqual(decided, [
          { type: "review_decided", step: "check", approved: false, reason: "no", reviewer: "temporal" }
        ])
      })
    )

    it.effect("inputs, outputs and texts do not stand in Temporal's history", () =>
      Effect.gen(function* () {
        const runs = yield* PipelineRuns
        doings.byModel.set("secret", () => Effect.succeed({ answer: "sesame-out" }))
        const id = yield* startRun(
          definitions.add(
            `name: p\nsteps:\n${waiting("secret")}\n- {id: check, operator: human_review, needs: a, with: {title: sesame-title}}\noutputs: {x: "\${steps.a.output}"}`
          ),
          { who: "sesame-in" }
        )
        yield* settled(id, ["awaiting_review"])
        yield* runs.signal(acme, id, {
          name: "human_review_decision",
          payload: { approved: true, reason: "sesame-reason" }
        })
        assert.deepStrictEqual((yield* settled(id)).outputs, { x: { answer: "sesame-out" } })
        const history = yield* Effect.promise(() => handle(id).fetchHistory())
        const told = JSON.stringify(history, (_, value: unknown) =>
          value instanceof Uint8Array ? Buffer.from(value).toString("utf8") : value
        )
        assert.include(told, id)
        assert.notInclude(told, "sesame")
      })
    )

    it.effect("large outputs and many steps are no burden", () =>
      Effect.gen(function* () {
        doings.byModel.set("large", () => Effect.succeed("x".repeat(900_000)))
        const chain = Array.from(
          { length: 26 },
          (_, n) => `- {id: s${n}, operator: transform, needs: ${n === 0 ? "d" : `s${n - 1}`}, with: ${n}}`
        )
        const id = yield* startRun(
          definitions.add(
            `name: p\nsteps:\n${["a", "b", "c", "d"].map((step) => waiting("large", step)).join("\n")}\n${chain.join("\n")}\noutputs: {size: "\${$length(steps.a.output)}"}`
          )
        )
        assert.deepInclude(yield* settled(id), { status: "completed", outputs: { size: 900_000 } })
        assert.lengthOf(
          (yield* eventsOf(id)).filter(({ type }) => type === "step_completed"),
          30
        )
      })
    )

    it.effect("a workflow that is reset does nothing twice", () =>
      Effect.gen(function* () {
        const runs = yield* PipelineRuns
        let tries = 0
        doings.byModel.set("counted", () => Effect.sync(() => ++tries))
        const id = yield* startRun(
          definitions.add(`name: p\nsteps:\n${waiting("counted")}\n- {id: check, operator: human_review, needs: a}`)
        )
        yield* settled(id, ["awaiting_review"])
        // What an operator does to a workflow that went wrong: all activities are done again, and find what was done.
        const first = yield* Effect.promise(() => handle(id).describe())
        const { workflowService } = temporal!
        yield* Effect.promise(() =>
          workflowService.resetWorkflowExecution({
            namespace: own.namespace,
            workflowExecution: { workflowId: `pipeline-run-${id}`, runId: first.runId },
            reason: "test",
            workflowTaskFinishEventId: 4 as never,
            requestId: crypto.randomUUID()
          })
        )
        yield* Effect.sleep(1000)
        yield* runs.signal(acme, id, { name: "human_review_decision", payload: { approved: true } })
        assert.strictEqual((yield* settled(id)).status, "completed")
        assert.strictEqual(tries, 1)
      })
    )

    it.effect("the embedded engine leaves Temporal's runs alone", () =>
      Effect.gen(function* () {
        const begun = yield* Deferred.make<void>()
        const release = yield* Deferred.make<void>()
        doings.byModel.set("theirs", () =>
          Effect.as(Effect.andThen(Deferred.succeed(begun, undefined), Deferred.await(release)), 1)
        )
        const id = yield* startRun(definitions.add(`name: p\nsteps:\n${waiting("theirs")}`))
        yield* Deferred.await(begun)
        yield* Layer.build(embeddedEngine(new Doings(), definitions))
        yield* Effect.sleep(300)
        assert.strictEqual(yield* openExecutions, 0)
        yield* Deferred.succeed(release, undefined)
        assert.strictEqual((yield* settled(id)).status, "completed")
      }).pipe(Effect.scoped)
    )

    it.effect("an engine that is away answers soon, and what was asked has not happened", () =>
      Effect.gen(function* () {
        const id = yield* startRun(definitions.add(review))
        yield* settled(id, ["awaiting_review"])
        const engine = yield* Effect.map(
          Layer.build(WorkflowEngineTemporal.layer({ ...own, address: "127.0.0.1:1" })),
          (built) => Context.get(built, WorkflowEngine)
        )
        const key = { tenant: "acme", runId: id }
        const began = performance.now()
        for (const action of [
          engine.decide(key, { step: undefined, approved: true, reason: "", reviewer: "ada" }),
          engine.cancel(key, "ada"),
          engine.terminate(key, "ada", "")
        ]) {
          assert.strictEqual((yield* Effect.flip(action)).code, "workflow_engine_unavailable")
        }
        assert.isBelow(performance.now() - began, 6000)
        assert.deepStrictEqual(
          (yield* eventsOf(id)).map(({ type }) => type),
          ["run_started", "review_requested"]
        )
        assert.isNotEmpty(yield* engine.history(key, 0, 10))
        const runs = yield* PipelineRuns
        yield* runs.terminate(acme, id, "")
        assert.strictEqual((yield* settled(id)).status, "terminated")
      }).pipe(Effect.scoped)
    )
  })
})
