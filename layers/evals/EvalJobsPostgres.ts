import { Clock, Effect, Layer } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { invalidValue, notFound, type Unavailable, type ValidationFailed } from "#domain/errors.ts"
import { type EvalJob, type EvalScore, pinnedTemperature } from "#domain/evals.ts"
import { isUuid, uuidv7 } from "#domain/ids.ts"
import type { JsonObject } from "#domain/json.ts"
import { publicTenant, type RowScope } from "#domain/principal.ts"
import { jobColumns, jobOf, type JobRow } from "#layers/evals/job-rows.ts"
import { makePins, type PinnedItems } from "#layers/evals/pins.ts"
import { EvalJobs, type NewEvalJob } from "#services/evals/EvalJobs.ts"
import { EvalRunStarter } from "#services/evals/EvalRunStarter.ts"
import { makeAudit } from "#services/provenance/audit.ts"
import type { Provenance } from "#services/provenance/Provenance.ts"
import { orUnavailable } from "#services/storage/outage.ts"
import { rowsWithin } from "#services/storage/row-scope.ts"
import { Tenants } from "#services/tenants/Tenants.ts"

/** The most test cases of one job. */
const maxTestCases = 500_000

interface ScoreRow {
  readonly test_case_id: string
  readonly score: number
  readonly label: string | null
  readonly explanation: string | null
  readonly gen_ai_response_id: string | null
  readonly scored_by: string
  readonly created_at: Date
}

const scoreOf = (row: ScoreRow): EvalScore => ({
  testCaseId: row.test_case_id,
  score: row.score,
  label: row.label,
  explanation: row.explanation,
  genAiResponseId: row.gen_ai_response_id,
  scoredBy: row.scored_by,
  createdAt: row.created_at.getTime()
})

const noCases = invalidValue("eval_suite_id", "The suite and its dataset snapshots hold no test cases.")
const tooManyCases = invalidValue("dataset_snapshot_ids", `A job has at most ${maxTestCases} test cases.`)
const sameCase = invalidValue("dataset_snapshot_ids", "Two test cases of the suite and its snapshots have the same id.")

/** Eval jobs in each tenant's schema. */
export const layer: Layer.Layer<EvalJobs, never, SqlClient.SqlClient | EvalRunStarter | Provenance | Tenants> =
  Layer.effect(
    EvalJobs,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const tenants = yield* Tenants
      const runs = yield* EvalRunStarter
      const clock = yield* Clock.Clock
      const audit = yield* makeAudit
      const schemas = [...new Set(yield* Effect.forEach([publicTenant, ...tenants.slugs], tenants.schemaOf))]
      const table = (schema: string, name: string) => sql.literal(`${schema}.${name}`)

      const withStatuses = Effect.fnUntraced(function* (
        rows: ReadonlyArray<JobRow>
      ): Effect.fn.Return<ReadonlyArray<EvalJob>, SqlError.SqlError> {
        const statuses = new Map<string, string>()
        for (const [tenant, members] of Map.groupBy(rows, (row) => row.tenant)) {
          const found = yield* runs.statuses(
            tenant,
            members.map((row) => row.pipeline_run_id)
          )
          for (const [id, status] of found) statuses.set(`${tenant} ${id}`, status)
        }
        return rows.map((row) => jobOf(row, statuses.get(`${row.tenant} ${row.pipeline_run_id}`) ?? "accepted"))
      })

      const insertItems = Effect.fnUntraced(function* (
        schema: string,
        jobId: string,
        sources: ReadonlyArray<PinnedItems>
      ) {
        let position = 0
        for (const source of sources) {
          if (source.itemCount === 0) continue
          const [made] = yield* sql<{ count: bigint }>`WITH made AS (
            INSERT INTO ${table(schema, "eval_items")} (job_id, test_case_id, position, weight, asset_id, ordinal)
            SELECT ${jobId}::uuid, item_id, ${position}::int + row_number() OVER (ORDER BY ordinal), weight, asset_id, ordinal
            FROM ${table(schema, "asset_items")} WHERE asset_id = ${source.assetId} AND item_list = ${source.itemList}
              AND ordinal <= ${source.lastItem}
            ON CONFLICT (job_id, test_case_id) DO NOTHING RETURNING 1
          ) SELECT count(*) AS count FROM made`
          if (Number(made?.count ?? 0n) !== source.itemCount) return yield* sameCase
          position += source.itemCount
        }
        return position
      })

      const create = Effect.fn("EvalJobs.create")(function* (job: NewEvalJob) {
        const { tenant, organizationId } = job.owner
        const schema = yield* tenants.schemaOf(tenant)
        const pins = makePins(sql, schema, job.scope)
        const at = clock.currentTimeMillisUnsafe()
        const id = uuidv7(at)
        return yield* sql
          .withTransaction(
            Effect.gen(function* (): Effect.fn.Return<EvalJob, SqlError.SqlError | Unavailable | ValidationFailed> {
              const suite = yield* pins.suite(job.suiteId, job.suiteVersion)
              const ids = [...job.snapshotIds, ...suite.snapshotIds]
              const snapshots = yield* pins.snapshots(ids, (index) =>
                index < job.snapshotIds.length ? `dataset_snapshot_ids.${index}` : "eval_suite_id"
              )
              const sources: ReadonlyArray<PinnedItems> = [suite, ...snapshots.items]
              const expected = sources.reduce((sum, { itemCount }) => sum + itemCount, 0)
              if (expected === 0) return yield* noCases
              if (expected > maxTestCases) return yield* tooManyCases
              yield* insertItems(schema, id, sources)
              const inputs: JsonObject = {
                dataset_snapshots: snapshots.pinned.map((pin) => ({
                  asset_id: pin.assetId,
                  content_hash: pin.contentHash,
                  snapshot_id: pin.snapshotId,
                  version: pin.version
                })),
                eval_suite_content_hash: suite.contentHash,
                eval_suite_id: suite.assetId,
                eval_suite_version: suite.version,
                judge_model_version: job.judgeModelVersion,
                model_asset_id: job.modelAssetId,
                model_version: job.modelVersion,
                reproducibility_seed: job.seed,
                temperature: pinnedTemperature
              }
              // Last, because it may lock the provenance chain, and asks an engine.
              const runId = yield* runs.start({
                tenant,
                organizationId,
                evalJobId: id,
                actor: job.actor,
                inputs,
                startedAt: at
              })
              const rows = yield* sql<JobRow>`INSERT INTO ${table(schema, "eval_jobs")}
                  (id, tenant, organization_id, eval_suite_id, eval_suite_version, model_asset_id, model_version,
                    judge_model_version, dataset_snapshots, reproducibility_seed, pass_threshold, pipeline_run_id, status,
                    expected_count, created_by, created_at)
                VALUES (${id}, ${tenant}, ${organizationId}, ${suite.assetId}, ${suite.version}, ${job.modelAssetId},
                  ${job.modelVersion}, ${job.judgeModelVersion}, ${JSON.stringify(inputs["dataset_snapshots"])},
                  ${job.seed === null ? null : String(job.seed)}::text::bigint, ${suite.passThreshold}, ${runId}, 'created',
                  ${expected}, ${job.actor}, ${new Date(at)})
                RETURNING ${jobColumns(sql)}`
              const [made] = yield* withStatuses(rows)
              return made ?? (yield* Effect.die(new Error("an eval job vanished")))
            })
          )
          .pipe(orUnavailable)
      })

      const list: EvalJobs["Service"]["list"] = Effect.fn("EvalJobs.list")(function* ({
        limit,
        offset,
        scope,
        status
      }) {
        const schema = yield* tenants.schemaOf(scope.tenant)
        const matching = sql.and([rowsWithin(sql, scope), ...(status === undefined ? [] : [sql`status = ${status}`])])
        const jobs = table(schema, "eval_jobs")
        return yield* Effect.gen(function* () {
          const rows = yield* sql<JobRow>`SELECT ${jobColumns(sql)} FROM ${jobs} WHERE ${matching}
            ORDER BY created_at DESC, id DESC LIMIT ${limit} OFFSET ${offset}`
          const [total] = yield* sql<{ count: bigint }>`SELECT count(*) AS count FROM ${jobs} WHERE ${matching}`
          return { jobs: yield* withStatuses(rows), total: Number(total?.count ?? 0n) }
        }).pipe(orUnavailable)
      })

      const find = Effect.fn("EvalJobs.find")(function* (scope: RowScope, id: string) {
        if (!isUuid(id)) return yield* notFound("eval job")
        const places = scope.tenant === undefined ? schemas : [yield* tenants.schemaOf(scope.tenant)]
        for (const schema of places) {
          const rows = yield* sql<JobRow>`SELECT ${jobColumns(sql)} FROM ${table(schema, "eval_jobs")}
            WHERE id = ${id} AND ${rowsWithin(sql, scope)}`.pipe(orUnavailable)
          const [job] = yield* withStatuses(rows).pipe(orUnavailable)
          if (job !== undefined) return job
        }
        return yield* notFound("eval job")
      })

      const scores: EvalJobs["Service"]["scores"] = Effect.fn("EvalJobs.scores")(function* (job, { limit, offset }) {
        const schema = yield* tenants.schemaOf(job.tenant)
        const rows = yield* sql<ScoreRow>`SELECT test_case_id, score, label, explanation, gen_ai_response_id, scored_by,
            created_at FROM ${table(schema, "eval_scores")} WHERE job_id = ${job.id}
          ORDER BY test_case_id, scored_by LIMIT ${limit} OFFSET ${offset}`.pipe(orUnavailable)
        return rows.map(scoreOf)
      })

      const auditOverride = (tenant: string, actor: string, callerTenant: string) =>
        audit({
          tenant,
          action: "eval_job.tenant_override",
          actor,
          resourceType: "eval_job",
          resourceId: "",
          payload: { caller_tenant: callerTenant, tenant }
        }).pipe(orUnavailable)

      return EvalJobs.of({ create, list, find, scores, auditOverride })
    })
  )
