import { assert, describe, layer } from "@effect/vitest"
import { Context, Effect, Exit, Layer, Scope } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { EvalJobs } from "#services/evals/EvalJobs.ts"
import { EvalLeaseManager, type Lease } from "#services/evals/EvalLeaseManager.ts"
import { EvaluationEvents, type EvaluationResult } from "#services/evals/EvaluationEvents.ts"
import { Provenance } from "#services/provenance/Provenance.ts"
import {
  catalogAndJobs,
  jobOf,
  leaseManager,
  makeJob,
  makeSuite,
  scopeOf,
  scoreOf,
  visibilityTimeout
} from "#test/layers/evals/evals.ts"

/** One process: a lease manager until the scope closes. */
const process = Effect.map(Layer.build(leaseManager()), (context) => Context.get(context, EvalLeaseManager))

const ids = (lease: Lease | undefined): ReadonlyArray<string> => lease?.items.map((item) => item.testCaseId) ?? []

const until = <A, E, R>(ask: Effect.Effect<A, E, R>, satisfies: (answer: A) => boolean) =>
  TestClock.withLive(
    Effect.gen(function* () {
      for (let tries = 0; tries < 400; tries++) {
        if (satisfies(yield* ask)) return
        yield* Effect.sleep(10)
      }
      return yield* Effect.die(new Error("never so"))
    })
  )

const held = (jobId: string) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    Effect.map(
      sql<{ count: bigint }>`SELECT count(*) AS count FROM tenant_acme.eval_items
        WHERE job_id = ${jobId} AND lease_id IS NOT NULL AND available_at < 9223372036854775807`,
      ([row]) => Number(row?.count)
    )
  )

describe("EvalLeaseManagerPostgres", () => {
  layer(catalogAndJobs())((it) => {
    it.effect("leases in the suite's order under the pinned conditions, to its tenant alone", () =>
      Effect.gen(function* () {
        const manager = yield* process
        const suite = yield* makeSuite({
          test_cases: [
            { id: "a", input: "1+1", expected: "2", weight: 2, topic: "sums" },
            { id: "b", question: "?" }
          ]
        })
        const job = yield* makeJob(suite.assetId, { seed: 7, modelAssetId: "m", modelVersion: "3" })
        assert.isUndefined(yield* manager.pull("globex", job.id, "w", 10))
        assert.isUndefined(yield* manager.pull("acme", "no-job", "w", 10))
        const lease = yield* manager.pull("acme", job.id, "w", 10)
        assert.deepInclude(lease, { seed: 7, modelAssetId: "m", modelVersion: "3" })
        assert.deepStrictEqual(lease?.items, [
          { testCaseId: "a", input: "1+1", expected: "2", metadata: { topic: "sums" }, weight: 2, attempt: 1 },
          { testCaseId: "b", input: { question: "?" }, expected: undefined, metadata: {}, weight: 1, attempt: 1 }
        ])
        assert.isUndefined(yield* manager.pull("acme", job.id, "w", 10))
        const found = yield* EvalJobs.use((jobs) => jobs.find(scopeOf("acme"), job.id))
        assert.deepInclude(found, { status: "running", pipelineRunStatus: "running" })
      })
    )

    it.effect("gives no item to two workers of several processes, and forgets none", () =>
      Effect.gen(function* () {
        const managers = [yield* process, yield* process, yield* process]
        const job = yield* jobOf(300)
        const leases = yield* Effect.forEach(
          Array.from({ length: 60 }, (_, n) => n),
          (n) => managers[n % 3]!.pull("acme", job.id, `worker-${n}`, 7),
          { concurrency: "unbounded" }
        )
        const given = leases.flatMap(ids)
        assert.strictEqual(new Set(given).size, given.length)
        assert.strictEqual(given.length, 300)
      })
    )

    it.effect("gives an item back when its lease ends, not before, and keeps what was scored", () =>
      Effect.gen(function* () {
        const manager = yield* process
        const job = yield* jobOf(3)
        const lease = yield* manager.pull("acme", job.id, "slow", 3)
        yield* manager.score("acme", scoreOf(job.id, "case-2", 1))
        yield* TestClock.adjust("299 seconds")
        assert.isUndefined(yield* manager.pull("acme", job.id, "eager", 3))
        yield* TestClock.adjust("1 second")
        yield* until(held(job.id), (count) => count === 0)
        const again = yield* manager.pull("acme", job.id, "eager", 3)
        assert.deepStrictEqual(ids(again), ["case-1", "case-3"])
        assert.deepStrictEqual(
          again?.items.map(({ attempt }) => attempt),
          [2, 2]
        )
        assert.notStrictEqual(again?.id, lease?.id)
      })
    )

    it.effect("goes by the rows: a dead process's leases end at their time, and are armed again by the next", () =>
      Effect.gen(function* () {
        const job = yield* jobOf(2)
        const scope = yield* Scope.make()
        const dead = yield* Scope.provide(process, scope)
        yield* dead.pull("acme", job.id, "w", 1)
        yield* Scope.close(scope, Exit.void)
        const other = yield* process
        assert.deepStrictEqual(ids(yield* other.pull("acme", job.id, "w", 5)), ["case-2"])
        assert.strictEqual(yield* held(job.id), 2)
        yield* TestClock.adjust(visibilityTimeout)
        yield* until(held(job.id), (count) => count === 0)
        assert.deepStrictEqual(ids(yield* other.pull("acme", job.id, "w", 5)), ["case-1", "case-2"])
      })
    )

    it.effect("counts a score once, however often it comes, and decides once under concurrency", () =>
      Effect.gen(function* () {
        const results: Array<EvaluationResult> = []
        const managers = yield* Effect.forEach([1, 2], () => process).pipe(
          Effect.provideService(EvaluationEvents, (result) => void results.push(result))
        )
        const sql = yield* SqlClient.SqlClient
        const job = yield* jobOf(40)
        const attempts = Array.from({ length: 160 }, (_, n) => n)
        const answers = yield* Effect.forEach(
          attempts,
          (n) => managers[n % 2]!.score("acme", scoreOf(job.id, `case-${(n % 40) + 1}`, n < 40 ? 0.8 : 0.1)),
          { concurrency: "unbounded" }
        )
        assert.isTrue(answers.some(({ status }) => status === "completed"))
        assert.isTrue(answers.every(({ status, verdict }) => (status === "completed") === (verdict !== undefined)))
        const found = yield* EvalJobs.use((jobs) => jobs.find(scopeOf("acme"), job.id))
        assert.deepInclude(found, {
          status: "completed",
          scoreCount: 40,
          scoredCount: 40,
          verdict: "pass",
          aggregateScore: 0.8,
          pipelineRunStatus: "completed"
        })
        const entries = yield* sql<{ action: string; count: bigint }>`SELECT action, count(*) AS count
          FROM tenant_acme.provenance_entries WHERE resource_id = ${job.id} GROUP BY action ORDER BY action`
        assert.deepStrictEqual(entries, [
          { action: "eval_job.completed", count: 1n },
          { action: "gen_ai.evaluation.result", count: 40n }
        ])
        assert.strictEqual(results.filter(({ evalJobId }) => evalJobId === job.id).length, 40)
        const chain = yield* Provenance.use((provenance) => provenance.verify("acme"))
        assert.isUndefined(chain.broken)
      })
    )

    it.effect("weighs exactly: a mean that equals the threshold passes", () =>
      Effect.gen(function* () {
        const manager = yield* process
        const suite = yield* makeSuite({
          test_cases: [{ id: "a", weight: 3 }, { id: "b" }, ...Array.from({ length: 8 }, (_, n) => ({ id: `c${n}` }))],
          pass_threshold: 0.7
        })
        const job = yield* makeJob(suite.assetId)
        for (const id of ["a", "b", ...Array.from({ length: 8 }, (_, n) => `c${n}`)]) {
          yield* manager.score("acme", scoreOf(job.id, id, 0.7))
        }
        const found = yield* EvalJobs.use((jobs) => jobs.find(scopeOf("acme"), job.id))
        assert.deepInclude(found, { aggregateScore: 0.7, verdict: "pass" })
        const lopsided = yield* makeJob(suite.assetId)
        for (const { testCaseId } of (yield* manager.pull("acme", lopsided.id, "w", 99))!.items) {
          yield* manager.score("acme", scoreOf(lopsided.id, testCaseId, testCaseId === "a" ? 1 : 0))
        }
        const failed = yield* EvalJobs.use((jobs) => jobs.find(scopeOf("acme"), lopsided.id))
        assert.deepInclude(failed, { aggregateScore: 0.25, verdict: "fail" })
      })
    )

    it.effect("keeps the verdict when another scorer comes late, and shows its score", () =>
      Effect.gen(function* () {
        const manager = yield* process
        const job = yield* jobOf(1)
        yield* manager.score("acme", scoreOf(job.id, "case-1", 1))
        const late = yield* manager.score("acme", scoreOf(job.id, "case-1", 0, { scoredBy: "another" }))
        assert.deepInclude(late, { status: "completed", verdict: "pass", aggregateScore: 1, scoreCount: 2 })
        const jobs = yield* EvalJobs
        const scores = yield* jobs.scores(job, { limit: 10, offset: 0 })
        assert.deepStrictEqual(
          scores.map(({ score, scoredBy }) => [scoredBy, score]),
          [
            ["another", 0],
            ["judge", 1]
          ]
        )
      })
    )

    it.effect("answers for what is absent, foreign or closed, and takes the rest of a batch all the same", () =>
      Effect.gen(function* () {
        const manager = yield* process
        const sql = yield* SqlClient.SqlClient
        const job = yield* jobOf(2)
        const cancelled = yield* jobOf(1)
        yield* sql`UPDATE tenant_acme.eval_jobs SET status = 'cancelled' WHERE id = ${cancelled.id}`
        const code = (tenant: string | undefined, jobId: string, testCaseId: string) =>
          Effect.match(manager.score(tenant, scoreOf(jobId, testCaseId, 1)), {
            onFailure: (error) => error.code,
            onSuccess: ({ status }) => status
          })
        assert.deepStrictEqual(
          yield* Effect.all(
            [
              code("acme", job.id, "case-1"),
              code("globex", job.id, "case-1"),
              code("acme", job.id, "case-9"),
              code("acme", "no-job", "case-1"),
              code("acme", cancelled.id, "case-1"),
              code(undefined, job.id, "case-2")
            ],
            { concurrency: "unbounded" }
          ),
          ["running", "resource_not_found", "resource_not_found", "resource_not_found", "invalid_state", "completed"]
        )
        assert.isUndefined(yield* manager.pull("acme", cancelled.id, "w", 1))
      })
    )
  })
})
