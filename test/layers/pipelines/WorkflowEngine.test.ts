/** The contract of workflow engines held against the embedded one, and what only that one does. */
import { assert, layer } from "@effect/vitest"
import { Clock, Deferred, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { Unavailable } from "#domain/errors.ts"
import { StepFailed } from "#services/pipelines/Operators.ts"
import { WorkflowEngine } from "#services/pipelines/WorkflowEngine.ts"
import { workflowEngineContract } from "#test/layers/pipelines/workflow-engine-contract.ts"
import {
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
  - {id: check, operator: human_review, timeout: 30d}
  - {id: after, operator: transform, needs: check, with: done}
`

const executionsOf = (runId: string) =>
  Effect.flatMap(
    SqlClient.SqlClient,
    (sql) => sql<{ readonly owner: string | null; readonly days: number }>`SELECT owner,
      extract(epoch FROM wake_at - now())::float8 / 86400 AS days
      FROM public.workflow_executions WHERE run_id = ${runId}`
  )

workflowEngineContract({
  name: "embedded",
  engine,
  // It is in the gateway's own database, so that only its start can fail by itself.
  unreachable: Layer.mock(WorkflowEngine, {
    namespace: "embedded",
    refusal: undefined,
    workflowId: (id) => id,
    start: () => Effect.fail(new Unavailable({ code: "workflow_engine_unavailable", message: "away" })),
    discard: () => Effect.void
  }),
  wakesIn: Effect.fnUntraced(function* (runId) {
    while (true) {
      const [row] = yield* executionsOf(runId)
      if (row?.owner === null) return row.days
      yield* Effect.sleep(20)
    }
  }),
  knows: (runId) => Effect.map(executionsOf(runId), (rows) => rows.length > 0)
})

layer(pipelineBase(), { timeout: 60_000, excludeTestServices: true })("WorkflowEngine, embedded only", (it) => {
  const doings = new Doings()
  const definitions = new Definitions()

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
})
