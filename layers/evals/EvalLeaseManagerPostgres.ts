import { Clock, Duration, Effect, FiberMap, Layer } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import type { EvalJobStatus } from "#domain/evals.ts"
import { isUuid, uuidv7 } from "#domain/ids.ts"
import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"
import { publicTenant } from "#domain/principal.ts"
import { makeScoreRows, neverAgain, type ScoreEntry } from "#layers/evals/score-rows.ts"
import { makeBatches } from "#layers/evals/ScoreBatches.ts"
import { EvalLeaseManager, type Lease, type LeasedItem, type NewScore } from "#services/evals/EvalLeaseManager.ts"
import { EvalRunStarter } from "#services/evals/EvalRunStarter.ts"
import { EvaluationEvents } from "#services/evals/EvaluationEvents.ts"
import type { Provenance } from "#services/provenance/Provenance.ts"
import { orUnavailable } from "#services/storage/outage.ts"
import { Tenants } from "#services/tenants/Tenants.ts"
import { notFound } from "#domain/errors.ts"

export interface EvalLeaseOptions {
  /** GATEWAY_EVAL_LEASE_TIMEOUT. */
  readonly visibilityTimeout: Duration.Duration
}

/** Scores in one transaction, and scores that may wait for one. */
const scoresAtOnce = 256
const scoresWaiting = 10_000

interface JobFacts {
  readonly id: string
  readonly tenant: string
  readonly status: EvalJobStatus
  readonly pipeline_run_id: string
  readonly reproducibility_seed: bigint | null
  readonly model_asset_id: string | null
  readonly model_version: string | null
}

interface ItemRow {
  readonly test_case_id: string
  readonly weight: number
  readonly attempts: number
  readonly item: string
}

interface HeldRow {
  readonly job_id: string
  readonly lease_id: string
  readonly available_at: bigint
  readonly items: bigint
}

const itemOf = (row: ItemRow): LeasedItem => {
  const value = JSON.parse(row.item) as Json
  const { expected, id: _id, input, weight: _weight, ...metadata } = isJsonObject(value) ? value : ({} as JsonObject)
  // A dataset's item that is no test case by its form is itself the input.
  return {
    testCaseId: row.test_case_id,
    input: input === undefined ? metadata : input,
    expected,
    metadata: input === undefined ? {} : metadata,
    weight: row.weight,
    attempt: row.attempts
  }
}

/** Leases in each tenant's schema, with a fiber a lease. */
export const layer = (
  options: EvalLeaseOptions
): Layer.Layer<EvalLeaseManager, SqlError.SqlError, SqlClient.SqlClient | EvalRunStarter | Provenance | Tenants> =>
  Layer.effect(
    EvalLeaseManager,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const tenants = yield* Tenants
      const runs = yield* EvalRunStarter
      const clock = yield* Clock.Clock
      const publish = yield* EvaluationEvents
      const scoreRows = yield* makeScoreRows
      const timeout = Duration.toMillis(options.visibilityTimeout)
      const schemas = [...new Set(yield* Effect.forEach([publicTenant, ...tenants.slugs], tenants.schemaOf))]

      // Processes on several machines compare the ends of leases, so all of them go by the database's clock.
      const [database] = yield* sql<{ now: number }>`SELECT extract(epoch FROM clock_timestamp())::float8 * 1000 AS now`
      const ahead = Math.round((database?.now ?? 0) - clock.currentTimeMillisUnsafe())
      const now = () => clock.currentTimeMillisUnsafe() + ahead

      const fibers = yield* FiberMap.make<string>()
      /** Items of a lease of this process that have no score yet. */
      const open = new Map<string, number>()

      const giveBack = (schema: string, jobId: string, leaseId: string, expiresAt: number) =>
        sql
          .unsafe(
            `WITH mine AS (
              SELECT job_id, test_case_id FROM ${schema}.eval_items
              WHERE job_id = $1 AND available_at = $2::text::bigint AND lease_id = $3 FOR UPDATE SKIP LOCKED
            ) UPDATE ${schema}.eval_items i SET available_at = 0, lease_id = NULL, worker_id = NULL
            FROM mine WHERE i.job_id = mine.job_id AND i.test_case_id = mine.test_case_id`,
            [jobId, String(expiresAt), leaseId]
          )
          .pipe(
            // The end of the lease stands in the rows: they are available even if nobody says so.
            Effect.catchCause((cause) => Effect.logWarning("An expired eval lease could not be given back", cause)),
            Effect.ensuring(Effect.sync(() => open.delete(leaseId)))
          )

      const arm = (schema: string, jobId: string, leaseId: string, expiresAt: number, items: number) => {
        open.set(leaseId, items)
        return FiberMap.run(
          fibers,
          leaseId,
          Effect.andThen(Effect.sleep(Math.max(0, expiresAt - now())), giveBack(schema, jobId, leaseId, expiresAt))
        )
      }

      for (const schema of schemas) {
        const held = yield* sql.unsafe<HeldRow>(
          `SELECT i.job_id, i.lease_id, i.available_at, count(*) AS items
          FROM ${schema}.eval_jobs j JOIN ${schema}.eval_items i ON i.job_id = j.id
          WHERE j.status IN ('created', 'running') AND i.available_at > 0 AND i.available_at < ${neverAgain}
            AND i.lease_id IS NOT NULL
          GROUP BY i.job_id, i.lease_id, i.available_at`
        )
        for (const row of held) {
          yield* arm(schema, row.job_id, row.lease_id, Number(row.available_at), Number(row.items))
        }
      }

      /** The job as a caller sees it, and where it lies. */
      const factsOf = Effect.fnUntraced(function* (tenant: string | undefined, jobId: string) {
        if (!isUuid(jobId)) return undefined
        for (const schema of tenant === undefined ? schemas : [yield* tenants.schemaOf(tenant)]) {
          const [job] = yield* sql.unsafe<JobFacts>(
            `SELECT id, tenant, status, pipeline_run_id, reproducibility_seed, model_asset_id, model_version
            FROM ${schema}.eval_jobs WHERE id = $1`,
            [jobId]
          )
          if (job !== undefined && (tenant === undefined || job.tenant === tenant)) return { schema, job }
        }
        return undefined
      })

      const lease = (schema: string, jobId: string, leaseId: string, workerId: string, most: number, at: number) =>
        sql.unsafe<ItemRow>(
          `WITH free AS (
            SELECT job_id, test_case_id FROM ${schema}.eval_items
            WHERE job_id = $1 AND available_at <= $2::text::bigint
            ORDER BY available_at, position LIMIT $3 FOR UPDATE SKIP LOCKED
          ), taken AS (
            UPDATE ${schema}.eval_items i
            SET available_at = $4::text::bigint, lease_id = $5, worker_id = $6, attempts = i.attempts + 1
            FROM free WHERE i.job_id = free.job_id AND i.test_case_id = free.test_case_id
            RETURNING i.test_case_id, i.position, i.weight, i.attempts, i.asset_id, i.ordinal
          ) SELECT t.test_case_id, t.weight, t.attempts, a.item FROM taken t
            JOIN ${schema}.asset_items a ON a.asset_id = t.asset_id AND a.ordinal = t.ordinal ORDER BY t.position`,
          [jobId, String(at), most, String(at + timeout), leaseId, workerId]
        )

      const begin = (schema: string, job: JobFacts) =>
        sql.withTransaction(
          Effect.gen(function* () {
            const changed = yield* sql.unsafe(
              `UPDATE ${schema}.eval_jobs SET status = 'running' WHERE id = $1 AND status = 'created' RETURNING id`,
              [job.id]
            )
            if (changed.length > 0) yield* runs.running(job.tenant, job.pipeline_run_id)
          })
        )

      const pull = Effect.fnUntraced(function* (
        tenant: string | undefined,
        jobId: string,
        workerId: string,
        batchSize: number
      ): Effect.fn.Return<Lease | undefined, SqlError.SqlError> {
        const found = yield* factsOf(tenant, jobId)
        if (found === undefined) return undefined
        const { job, schema } = found
        if (job.status !== "created" && job.status !== "running") return undefined
        const at = now()
        const leaseId = uuidv7(at)
        const rows = yield* lease(schema, job.id, leaseId, workerId, batchSize, at)
        if (rows.length === 0) return undefined
        yield* arm(schema, job.id, leaseId, at + timeout, rows.length)
        if (job.status === "created") yield* begin(schema, job)
        return {
          id: leaseId,
          expiresAt: at + timeout,
          seed: job.reproducibility_seed === null ? null : Number(job.reproducibility_seed),
          modelAssetId: job.model_asset_id,
          modelVersion: job.model_version,
          items: rows.map(itemOf)
        }
      })

      /** A lease whose items are all scored has nothing to wait for. */
      const finish = Effect.fnUntraced(function* (finished: ReadonlyMap<string, number>) {
        for (const [leaseId, items] of finished) {
          const left = open.get(leaseId)
          if (left === undefined) continue
          if (left > items) open.set(leaseId, left - items)
          else {
            open.delete(leaseId)
            yield* FiberMap.remove(fibers, leaseId)
          }
        }
      })

      const batches = yield* makeBatches({
        most: scoresAtOnce,
        waiting: scoresWaiting,
        run: Effect.fnUntraced(function* (schema: string, entries: ReadonlyArray<ScoreEntry>) {
          const written = yield* scoreRows.write(schema, entries).pipe(orUnavailable)
          yield* finish(written.finished)
          if (publish !== undefined) for (const result of written.results) publish(result)
          return written.outcomes
        })
      })

      const score = Effect.fnUntraced(function* (tenant: string | undefined, entry: NewScore) {
        if (tenant !== undefined)
          return yield* batches.submit(yield* tenants.schemaOf(tenant), { tenant, score: entry })
        const found = yield* orUnavailable(factsOf(undefined, entry.jobId))
        if (found === undefined) return yield* notFound("eval job")
        return yield* batches.submit(found.schema, { tenant, score: entry })
      })

      return EvalLeaseManager.of({
        pull: (tenant, jobId, workerId, batchSize) => orUnavailable(pull(tenant, jobId, workerId, batchSize)),
        score
      })
    })
  )
