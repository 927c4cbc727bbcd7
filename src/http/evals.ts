import { Effect, Layer } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { ManagementCaller, ModelCaller, RequestId } from "#api/access.ts"
import { Api } from "#api/Api.ts"
import { invalidValue, notFound, PermissionDenied } from "#domain/errors.ts"
import { defaultBatchSize, type EvalJob, maxBatchSize, pinnedTemperature } from "#domain/evals.ts"
import { instantText } from "#domain/instants.ts"
import { actorOf, isInstanceAdmin, type ManagementPrincipal, publicTenant, type RowScope } from "#domain/principal.ts"
import { attestedOwner, DatasetHandlers, EvalSuiteHandlers } from "#http/datasets.ts"
import { isGiven } from "#http/row-owner.ts"
import { TraceHandlers } from "#http/traces.ts"
import { EvalJobs } from "#services/evals/EvalJobs.ts"
import { EvalLeaseManager } from "#services/evals/EvalLeaseManager.ts"
import { Tenants } from "#services/tenants/Tenants.ts"

const defaultLimit = 50
/** Results show all scores of all but the largest jobs at once. */
const defaultScores = 10_000

const overrideForbidden = new PermissionDenied({
  code: "tenant_override_forbidden",
  message: "Only a cross-tenant administrator may name a tenant.",
  param: "tenant"
})

const mayOverride = (caller: ManagementPrincipal): boolean =>
  caller._tag === "MasterKey" || caller.entitlements.has("cross_tenant_admin")

const tenantSlug = /^[a-z][a-z0-9_-]{0,39}$/

const shown = (job: EvalJob) => ({
  eval_job_id: job.id,
  tenant_id: job.tenant,
  eval_suite_id: job.suiteId,
  eval_suite_version: job.suiteVersion,
  pipeline_run_id: job.pipelineRunId,
  status: job.status,
  pipeline_run_status: job.pipelineRunStatus,
  reproducibility_seed: job.seed,
  temperature: pinnedTemperature,
  model_asset_id: job.modelAssetId,
  model_version: job.modelVersion,
  judge_model_version: job.judgeModelVersion,
  dataset_snapshots: job.snapshots.map((pin) => ({
    snapshot_id: pin.snapshotId,
    asset_id: pin.assetId,
    version: pin.version,
    content_hash: pin.contentHash
  })),
  pass_threshold: job.passThreshold,
  expected_count: job.expectedCount,
  scored_count: job.scoredCount,
  ...decisionOf(job),
  created_by: job.createdBy,
  created_at: instantText(job.createdAt),
  completed_at: job.completedAt === undefined ? null : instantText(job.completedAt)
})

const decisionOf = (job: Pick<EvalJob, "aggregateScore" | "verdict">) => ({
  ...(job.aggregateScore === undefined ? {} : { aggregate_score: job.aggregateScore }),
  ...(job.verdict === undefined ? {} : { verdict: job.verdict })
})

const EvalJobHandlers = HttpApiBuilder.group(
  Api,
  "eval_job",
  Effect.fn(function* (handlers) {
    const jobs = yield* EvalJobs
    const tenants = yield* Tenants

    /** Which jobs a caller may look at by their ids. */
    const readable = Effect.gen(function* () {
      const caller = yield* ManagementCaller
      if (isInstanceAdmin(caller)) return { tenant: undefined, organizationId: undefined } satisfies RowScope
      return (yield* attestedOwner(tenants)).scope
    })

    return handlers.handleAll({
      list: Effect.fnUntraced(function* ({ query }) {
        const caller = yield* ManagementCaller
        const page = { status: query.status, limit: query.limit ?? defaultLimit, offset: query.offset ?? 0 }
        const answer = (found: { readonly jobs: ReadonlyArray<EvalJob>; readonly total: number }) => ({
          jobs: found.jobs.map(shown),
          total: found.total
        })
        if (!isGiven(query.tenant)) {
          const { scope } = yield* attestedOwner(tenants)
          return answer(yield* jobs.list({ scope, ...page }))
        }
        if (!mayOverride(caller)) return yield* overrideForbidden
        const { tenant } = query
        if (!(tenants.dormant ? tenantSlug.test(tenant) : tenants.slugs.includes(tenant))) {
          return yield* invalidValue("tenant", "There is no such tenant.")
        }
        yield* jobs.auditOverride(tenant, actorOf(caller), caller._tag === "MasterKey" ? publicTenant : caller.tenant)
        return answer(yield* jobs.list({ scope: { tenant, organizationId: undefined }, ...page }))
      }),
      create: Effect.fnUntraced(function* ({ payload }) {
        const { actor, owner, scope } = yield* attestedOwner(tenants)
        const job = yield* jobs.create({
          owner,
          scope,
          suiteId: payload.eval_suite_id,
          suiteVersion: payload.eval_suite_version ?? undefined,
          modelAssetId: payload.model_asset_id ?? null,
          modelVersion: payload.model_version ?? null,
          judgeModelVersion: payload.judge_model_version ?? null,
          snapshotIds: (payload.dataset_snapshot_ids ?? []).map(String),
          seed: payload.reproducibility_seed ?? null,
          actor
        })
        return { eval_job_id: job.id, pipeline_run_id: job.pipelineRunId, status: job.status }
      }),
      find: Effect.fnUntraced(function* ({ params }) {
        return shown(yield* jobs.find(yield* readable, params.id))
      }),
      results: Effect.fnUntraced(function* ({ params, query }) {
        const job = yield* jobs.find(yield* readable, params.id)
        const scores = yield* jobs.scores(job, { limit: query.limit ?? defaultScores, offset: query.offset ?? 0 })
        return {
          eval_job_id: job.id,
          scores: scores.map((score) => ({
            test_case_id: score.testCaseId,
            score: score.score,
            label: score.label,
            explanation: score.explanation,
            gen_ai_response_id: score.genAiResponseId,
            scored_by: score.scoredBy,
            created_at: instantText(score.createdAt)
          })),
          ...decisionOf(job),
          result: {
            status: job.status,
            pass_threshold: job.passThreshold,
            expected_count: job.expectedCount,
            scored_count: job.scoredCount,
            score_count: job.scoreCount,
            completed_at: job.completedAt === undefined ? null : instantText(job.completedAt)
          }
        }
      })
    })
  })
)

const EvalWorkerHandlers = HttpApiBuilder.group(
  Api,
  "eval_worker",
  Effect.fn(function* (handlers) {
    const leases = yield* EvalLeaseManager
    const tenants = yield* Tenants

    /** The caller's tenant; undefined: every tenant's jobs are the master key's. `absent`: the tenant has no schema. */
    const attested = Effect.map(ModelCaller, (caller) => {
      const tenant = caller._tag === "MasterKey" ? undefined : caller.key.tenant
      const absent =
        tenant !== undefined && tenant !== publicTenant && !tenants.dormant && !tenants.slugs.includes(tenant)
      return { actor: actorOf(caller), tenant, absent }
    })

    return handlers.handleAll({
      pull: Effect.fnUntraced(function* ({ params, payload }) {
        const { absent, tenant } = yield* attested
        if (absent) return { items: [] }
        const size = Math.min(payload.batch_size ?? defaultBatchSize, maxBatchSize)
        const lease = yield* leases.pull(tenant, params.id, payload.worker_id, size)
        if (lease === undefined) return { items: [] }
        const expiresAt = instantText(lease.expiresAt)
        return {
          items: lease.items.map((item) => ({
            eval_job_id: params.id,
            test_case_id: item.testCaseId,
            input: item.input,
            ...(item.expected === undefined ? {} : { expected: item.expected }),
            metadata: item.metadata,
            weight: item.weight,
            seed: lease.seed,
            temperature: pinnedTemperature,
            model_asset_id: lease.modelAssetId,
            model_version: lease.modelVersion,
            lease_id: lease.id,
            lease_expires_at: expiresAt,
            attempt: item.attempt
          }))
        }
      }),
      score: Effect.fnUntraced(function* ({ payload }) {
        const { absent, actor, tenant } = yield* attested
        if (absent) return yield* notFound("eval job")
        const progress = yield* leases.score(tenant, {
          jobId: payload.eval_job_id,
          testCaseId: payload.test_case_id,
          score: payload.score,
          label: payload.label ?? null,
          explanation: payload.explanation ?? null,
          genAiResponseId: payload.gen_ai_response_id ?? null,
          // Who hands a score in without a name for the scorer is the scorer.
          scoredBy: isGiven(payload.scored_by) ? payload.scored_by : actor,
          actor,
          requestId: yield* RequestId
        })
        const completed = progress.status === "completed"
        return { pending: !completed, completed, score_count: progress.scoreCount, ...decisionOf(progress) }
      })
    })
  })
)

/** Datasets, suites, jobs, workers, traces and sessions. */
export const EvalHandlers = Layer.mergeAll(
  DatasetHandlers,
  EvalSuiteHandlers,
  EvalJobHandlers,
  EvalWorkerHandlers,
  TraceHandlers
)
