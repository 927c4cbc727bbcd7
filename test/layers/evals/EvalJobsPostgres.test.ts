import { assert, describe, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { Unavailable } from "#domain/errors.ts"
import * as EvalJobsPostgres from "#layers/evals/EvalJobsPostgres.ts"
import { EvalJobs } from "#services/evals/EvalJobs.ts"
import { EvalRunStarter } from "#services/evals/EvalRunStarter.ts"
import { AssetCatalog } from "#services/assets/AssetCatalog.ts"
import { catalogAndJobs, makeDataset, makeJob, makeSuite, scopeOf } from "#test/layers/evals/evals.ts"

const failure = <A, E>(effect: Effect.Effect<A, E, AssetCatalog | EvalJobs>) =>
  Effect.map(Effect.flip(effect), (error) => error as { readonly code: string; readonly param?: string })

const items = (jobId: string) =>
  Effect.flatMap(
    SqlClient.SqlClient,
    (sql) =>
      sql<{
        test_case_id: string
        weight: number
      }>`SELECT test_case_id, weight FROM tenant_acme.eval_items WHERE job_id = ${jobId} ORDER BY position`
  )

describe("EvalJobsPostgres", () => {
  layer(catalogAndJobs())((it) => {
    it.effect("pins the suite's head, or the version asked for, and passes the seed through", () =>
      Effect.gen(function* () {
        const jobs = yield* EvalJobs
        const catalog = yield* AssetCatalog
        const first = yield* makeSuite({ test_cases: [{ id: "a", weight: 3 }], pass_threshold: 0.9 })
        const job = yield* makeJob(first.assetId, { seed: 42, modelVersion: "v7" })
        assert.deepInclude(job, {
          suiteVersion: 1,
          seed: 42,
          modelVersion: "v7",
          passThreshold: 0.9,
          status: "created",
          pipelineRunStatus: "accepted",
          expectedCount: 1
        })
        assert.deepStrictEqual(yield* jobs.find(scopeOf("acme"), job.id), job)
        const { name } = yield* catalog.find(scopeOf("acme"), "eval_suite", first.assetId)
        yield* catalog.put({
          owner: { tenant: "acme", organizationId: "" },
          kind: "eval_suite",
          name,
          document: { name, eval_type: "exact", test_cases: [{ id: "b" }, { id: "c" }] },
          actor: "user:ann",
          path: "content"
        })
        const head = yield* makeJob(first.assetId)
        assert.deepInclude(head, { suiteVersion: 2, passThreshold: 0.5, expectedCount: 2, seed: null })
        const pinned = yield* makeJob(first.assetId, { suiteVersion: 1 })
        assert.deepStrictEqual(yield* items(pinned.id), [{ test_case_id: "a", weight: 3 }])
      })
    )

    it.effect("adds the items of dataset snapshots, however they are named, as they were then", () =>
      Effect.gen(function* () {
        const catalog = yield* AssetCatalog
        const suite = yield* makeSuite({ test_cases: [{ id: "s" }], dataset_snapshot_ids: ["table-snap"] })
        const named = yield* makeDataset([{ id: "t1" }], ["table-snap", "77"])
        const other = yield* makeDataset([{ id: "o1" }])
        yield* catalog.appendItems(scopeOf("acme"), other.assetId, [{ id: "o2", weight: 2 }], "user:ann")
        const job = yield* makeJob(suite.assetId, { snapshotIds: [`${other.assetId}@1`, "77"] })
        assert.deepStrictEqual(
          (yield* items(job.id)).map((item) => item.test_case_id),
          ["s", "o1", "t1"]
        )
        assert.deepStrictEqual(
          job.snapshots.map(({ assetId, snapshotId, version }) => [snapshotId, assetId, version]),
          [
            [`${other.assetId}@1`, other.assetId, 1],
            ["77", named.assetId, 1],
            ["table-snap", named.assetId, 1]
          ]
        )
        const head = yield* makeJob(suite.assetId, { snapshotIds: [`${other.assetId}@1`, other.assetId] })
        assert.deepStrictEqual(
          (yield* items(head.id)).map((item) => item.test_case_id),
          ["s", "o1", "o2", "t1"]
        )
        const hashed = yield* makeJob(suite.assetId, { snapshotIds: [other.contentHash] })
        assert.strictEqual(hashed.expectedCount, 3)
      })
    )

    it.effect("refuses what is not there, what is empty and what is ambiguous, and leaves nothing", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const jobs = yield* EvalJobs
        const before = (yield* jobs.list({ scope: scopeOf("acme"), status: undefined, limit: 1, offset: 0 })).total
        const empty = yield* makeSuite({})
        const suite = yield* makeSuite({ test_cases: [{ id: "same" }] })
        const dataset = yield* makeDataset([{ id: "same" }])
        const foreign = yield* makeSuite({ test_cases: [{ id: "x" }] }, "globex")
        assert.deepInclude(yield* failure(makeJob("nonsense")), { code: "invalid_value", param: "eval_suite_id" })
        assert.deepInclude(yield* failure(makeJob(foreign.assetId)), { code: "invalid_value", param: "eval_suite_id" })
        assert.deepInclude(yield* failure(makeJob(suite.assetId, { suiteVersion: 9 })), { param: "eval_suite_version" })
        assert.deepInclude(yield* failure(makeJob(empty.assetId)), { param: "eval_suite_id" })
        assert.deepInclude(yield* failure(makeJob(suite.assetId, { snapshotIds: [dataset.assetId] })), {
          code: "invalid_value",
          param: "dataset_snapshot_ids"
        })
        assert.deepInclude(yield* failure(makeJob(suite.assetId, { snapshotIds: [dataset.contentHash, "nope"] })), {
          param: "dataset_snapshot_ids.1"
        })
        const after = (yield* jobs.list({ scope: scopeOf("acme"), status: undefined, limit: 1, offset: 0 })).total
        assert.strictEqual(after, before)
        const [orphans] = yield* sql<{ count: bigint }>`SELECT count(*) AS count FROM tenant_acme.eval_items i
          WHERE NOT EXISTS (SELECT FROM tenant_acme.eval_jobs j WHERE j.id = i.job_id)`
        assert.strictEqual(orphans?.count, 0n)
      })
    )

    it.effect("leaves nothing when the engine fails", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const suite = yield* makeSuite({ test_cases: [{ id: "a" }] })
        const counts = sql<{ jobs: bigint; items: bigint; runs: bigint; entries: bigint }>`SELECT
          (SELECT count(*) FROM tenant_acme.eval_jobs) AS jobs, (SELECT count(*) FROM tenant_acme.eval_items) AS items,
          (SELECT count(*) FROM tenant_acme.eval_runs) AS runs,
          (SELECT sequence_number FROM tenant_acme.provenance_head) AS entries`
        const before = yield* counts
        const pulled = yield* EvalRunStarter
        const away = new Unavailable({ code: "workflow_engine_unavailable", message: "The engine is away." })
        const failing = Layer.succeed(EvalRunStarter, {
          ...pulled,
          start: (run) => Effect.andThen(pulled.start(run), Effect.fail(away))
        })
        const error = yield* failure(makeJob(suite.assetId)).pipe(
          Effect.provide(Layer.fresh(EvalJobsPostgres.layer).pipe(Layer.provide(failing)))
        )
        assert.deepInclude(error, { code: "workflow_engine_unavailable" })
        assert.deepStrictEqual(yield* counts, before)
      })
    )

    it.effect("lists a tenant's own jobs, newest first, and finds no other's", () =>
      Effect.gen(function* () {
        const jobs = yield* EvalJobs
        const suite = yield* makeSuite({ test_cases: [{ id: "a" }] }, "globex")
        const made = yield* Effect.forEach([1, 2, 3], (seed) =>
          Effect.andThen(TestClock.adjust("1 second"), makeJob(suite.assetId, { seed }, "globex"))
        )
        const page = { status: undefined, limit: 2, offset: 0 }
        const listed = yield* jobs.list({ scope: scopeOf("globex"), ...page })
        assert.strictEqual(listed.total, 3)
        assert.deepStrictEqual(
          listed.jobs.map(({ id }) => id),
          made
            .map(({ id }) => id)
            .toReversed()
            .slice(0, 2)
        )
        const none = yield* jobs.list({ scope: scopeOf("globex"), ...page, status: "completed" })
        assert.deepStrictEqual(none, { jobs: [], total: 0 })
        assert.deepInclude(yield* failure(jobs.find(scopeOf("acme"), made[0]!.id)), { code: "resource_not_found" })
        const anywhere = yield* jobs.find({ tenant: undefined, organizationId: undefined }, made[0]!.id)
        assert.strictEqual(anywhere.tenant, "globex")
      })
    )
  })
})
