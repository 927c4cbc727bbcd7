import { assert, layer } from "@effect/vitest"
import { Duration, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import * as RunRetention from "#layers/pipelines/RunRetention.ts"
import * as MigrationsPostgres from "#layers/storage/MigrationsPostgres.ts"
import * as TenantsPostgres from "#layers/tenants/TenantsPostgres.ts"
import { testDatabase } from "#test/support/Postgres.ts"

const environment = TenantsPostgres.layer(["acme"]).pipe(
  Layer.provideMerge(MigrationsPostgres.layer),
  Layer.provideMerge(testDatabase({ poolSize: 10 }))
)

const day = 86_400_000

/** Makes `count` runs with `events` entries of history and one review each; `finishedAt` null: not over. */
const runs = (schema: string, count: number, events: number, finishedAt: number | null) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const finished = finishedAt === null ? null : new Date(finishedAt)
    yield* sql.unsafe(
      `WITH made AS (
        INSERT INTO ${schema}.pipeline_runs (id, tenant, definition_id, definition_version, workflow_type,
          engine_workflow_id, engine_namespace, status, definition, inputs, principal, created_by, created_at, updated_at,
          finished_at)
        SELECT gen_random_uuid(), 'acme', gen_random_uuid(), 1, 'w', 'e', 'n',
          CASE WHEN $2::timestamptz IS NULL THEN 'running' ELSE 'completed' END, '{}', '{}', '{}', 'a', now(), now(), $2
        FROM generate_series(1, $1::int) RETURNING id
      ), reviews AS (
        INSERT INTO ${schema}.pipeline_reviews (run_id, step_id, title, details, reviewer_role, requested_at, deadline)
        SELECT id, 's', 't', 'd', 'r', now(), now() FROM made
      ) INSERT INTO ${schema}.pipeline_run_events (run_id, sequence, at, event)
      SELECT id, n, now(), '{}' FROM made, generate_series(1, $3::int) n`,
      [count, finished, events]
    )
  })

const left = (schema: string) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const counts: Array<number> = []
    for (const table of ["pipeline_runs", "pipeline_run_events", "pipeline_reviews"]) {
      const [row] = yield* sql.unsafe<{ count: number }>(`SELECT count(*)::int AS count FROM ${schema}.${table}`)
      counts.push(row!.count)
    }
    return counts
  })

layer(environment)("retention of finished runs", (it) => {
  it.effect("removes what ended before, with all that belongs to it, and nothing else", () =>
    Effect.gen(function* () {
      yield* runs("public", 3, 2, 10 * day)
      yield* runs("public", 2, 2, 20 * day)
      yield* runs("public", 1, 2, null)
      assert.strictEqual(yield* RunRetention.purgeRuns("public", 15 * day), 3)
      assert.deepStrictEqual(yield* left("public"), [3, 6, 3])
      assert.strictEqual(yield* RunRetention.purgeRuns("public", 15 * day), 0)
    })
  )

  it.effect("goes in steps, and one process at a time", () =>
    Effect.gen(function* () {
      yield* runs("tenant_acme", 250, 1, 10 * day)
      // A history longer than one step.
      yield* runs("tenant_acme", 1, 12_000, 10 * day)
      const results = yield* Effect.all(
        Array.from({ length: 4 }, () => RunRetention.purgeRuns("tenant_acme", 15 * day)),
        { concurrency: "unbounded" }
      )
      const sum = results.reduce<number>((total, count) => total + (count ?? 0), 0)
      assert.strictEqual(sum, 251)
      assert.deepStrictEqual(yield* left("tenant_acme"), [0, 0, 0])
    })
  )

  it.effect("happens by itself in every schema, when the time has come", () =>
    Effect.gen(function* () {
      yield* TestClock.adjust(Duration.days(100))
      yield* runs("public", 1, 1, 95 * day)
      yield* runs("tenant_acme", 1, 1, 95 * day)
      yield* Effect.gen(function* () {
        yield* TestClock.withLive(Effect.sleep("200 millis"))
        assert.strictEqual((yield* left("tenant_acme"))[0], 1)
        yield* TestClock.adjust(Duration.days(6))
        for (let tries = 0; tries < 100 && (yield* left("tenant_acme"))[0] !== 0; tries++) {
          yield* TestClock.withLive(Effect.sleep("20 millis"))
        }
        assert.deepStrictEqual(yield* left("tenant_acme"), [0, 0, 0])
      }).pipe(Effect.provide(RunRetention.layer({ keep: Duration.days(10) })))
    })
  )
})
