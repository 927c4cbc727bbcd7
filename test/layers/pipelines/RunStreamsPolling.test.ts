import { assert, layer } from "@effect/vitest"
import { Effect, Fiber, Layer, Stream } from "effect"
import { SqlClient } from "effect/sql"
import * as RunStreamsPolling from "#layers/pipelines/RunStreamsPolling.ts"
import * as WorkflowEngineOff from "#layers/pipelines/WorkflowEngineOff.ts"
import { RunStreams } from "#services/pipelines/RunStreams.ts"
import { Tenants } from "#services/tenants/Tenants.ts"
import { administrationBase } from "#test/support/administration.ts"

const decoder = new TextDecoder()

const eventOf = (bytes: Uint8Array) => {
  const [, event = "", data = ""] = /^event: (\S+)\ndata: (.*)\n\n$/.exec(decoder.decode(bytes)) ?? []
  return {
    event,
    ...(JSON.parse(data) as {
      readonly status: string
      readonly previous_status?: string | null
      readonly outputs?: unknown
    })
  }
}

const addRun = Effect.fnUntraced(function* (status: string) {
  const sql = yield* SqlClient.SqlClient
  const id = crypto.randomUUID()
  yield* sql`INSERT INTO tenant_acme.pipeline_runs (id, tenant, definition_id, definition_version, workflow_type,
    engine_workflow_id, engine_namespace, status, definition, inputs, principal, created_by, created_at, updated_at)
    VALUES (${id}, 'acme', ${id}, 1, '', '', '', ${status}, '{}', '{}', '{}', '', now(), now())`
  return { tenant: "acme", runId: id }
})

const setStatus = (runId: string, status: string) =>
  Effect.flatMap(
    SqlClient.SqlClient,
    (sql) => sql`UPDATE tenant_acme.pipeline_runs SET status = ${status}, outputs = '{"a":1}' WHERE id = ${runId}`
  )

let polls = 0

/** Counts what is asked. */
const countedTenants = Layer.effect(
  Tenants,
  Effect.map(Tenants, (tenants) => ({
    ...tenants,
    schemaOf: (tenant: string) => {
      polls++
      return tenants.schemaOf(tenant)
    }
  }))
)

const streams = RunStreamsPolling.layer({ interval: 60, maxViewers: 100 }).pipe(
  Layer.provide([countedTenants, WorkflowEngineOff.layer]),
  Layer.provideMerge(administrationBase())
)

layer(streams, { excludeTestServices: true })("RunStreams", (it) => {
  it.effect("tells all viewers of a run of each change with one poll, and ends with it", () =>
    Effect.gen(function* () {
      const service = yield* RunStreams
      const key = yield* addRun("accepted")
      polls = 0
      const viewers = yield* Effect.forEach(Array.from({ length: 50 }), () =>
        Effect.forkChild(Stream.runCollect(Stream.map(Stream.unwrap(service.watch(key)), eventOf)))
      )
      yield* Effect.sleep(200)
      assert.strictEqual(service.viewers(), 50)
      yield* setStatus(key.runId, "running")
      yield* Effect.sleep(200)
      assert.isBelow(polls, 10)
      yield* setStatus(key.runId, "completed")
      const seen = yield* Effect.forEach(viewers, Fiber.join)
      for (const events of seen) {
        assert.deepInclude(events[0], { event: "state-change", status: "accepted", previous_status: null })
        assert.deepInclude(events.at(-1), { event: "terminal", status: "completed", outputs: { a: 1 } })
        const changes = events.filter(({ event }) => event === "state-change").map(({ status }) => status)
        assert.deepStrictEqual(changes, ["accepted", "running"])
        assert.isTrue(events.some(({ event }) => event === "heartbeat"))
      }
      assert.strictEqual(service.viewers(), 0)
    })
  )

  it.effect("stops polling with its last viewer, tells a late one at once, and bounds how many there are", () =>
    Effect.gen(function* () {
      const service = yield* RunStreams
      const key = yield* addRun("running")
      const first = yield* Effect.forkChild(Stream.runDrain(Stream.unwrap(service.watch(key))))
      yield* Effect.sleep(100)
      const [late] = yield* Stream.runCollect(Stream.take(Stream.map(Stream.unwrap(service.watch(key)), eventOf), 1))
      assert.strictEqual(late?.status, "running")
      yield* Fiber.interrupt(first)
      assert.strictEqual(service.viewers(), 0)
      yield* Effect.sleep(80)
      polls = 0
      yield* Effect.sleep(150)
      assert.strictEqual(polls, 0)
      const many = yield* Effect.forEach(Array.from({ length: 100 }), () =>
        Effect.forkChild(Stream.runDrain(Stream.unwrap(service.watch(key))))
      )
      yield* Effect.sleep(50)
      assert.strictEqual((yield* Effect.flip(service.watch(key))).code, "overloaded")
      yield* Fiber.interruptAll(many)
    })
  )

  it.effect("a run that is over has one event", () =>
    Effect.gen(function* () {
      const service = yield* RunStreams
      const key = yield* addRun("cancelled")
      const events = yield* Stream.runCollect(Stream.map(Stream.unwrap(service.watch(key)), eventOf))
      assert.deepStrictEqual(
        events.map(({ event, status }) => [event, status]),
        [["terminal", "cancelled"]]
      )
    })
  )
})
