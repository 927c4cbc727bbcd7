/** Eval jobs (management-api.md, "eval_job") and their workers (model-api.md, "Eval worker"). */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema } from "effect/http-api"
import { Enveloped, JsonBody, ManagementAccess, ModelAccess, operation } from "#api/access.ts"
import { nullable, RequiredText, ShortText } from "#api/fields.ts"
import { evalJobStatuses } from "#domain/evals.ts"
import { isStorableText } from "#domain/storable.ts"

const Verdict = Schema.Literals(["pass", "fail"])

const Snapshot = Schema.Struct({
  snapshot_id: Schema.String,
  asset_id: Schema.String,
  version: Schema.Int,
  content_hash: Schema.String
})

const EvalJob = Schema.Struct({
  eval_job_id: Schema.String,
  tenant_id: Schema.String,
  eval_suite_id: Schema.String,
  eval_suite_version: Schema.Int,
  pipeline_run_id: Schema.String,
  status: Schema.Literals(evalJobStatuses),
  pipeline_run_status: Schema.String,
  reproducibility_seed: Schema.NullOr(Schema.Int),
  temperature: Schema.Finite,
  model_asset_id: Schema.NullOr(Schema.String),
  model_version: Schema.NullOr(Schema.String),
  judge_model_version: Schema.NullOr(Schema.String),
  dataset_snapshots: Schema.Array(Snapshot),
  pass_threshold: Schema.Finite,
  expected_count: Schema.Int,
  scored_count: Schema.Int,
  /** These two are there once the job is decided. */
  aggregate_score: Schema.optionalKey(Schema.Finite),
  verdict: Schema.optionalKey(Verdict),
  created_by: Schema.String,
  created_at: Schema.String,
  completed_at: Schema.NullOr(Schema.String)
}).annotate({ identifier: "EvalJob" })

const Score = Schema.Struct({
  test_case_id: Schema.String,
  score: Schema.Finite,
  label: Schema.NullOr(Schema.String),
  explanation: Schema.NullOr(Schema.String),
  gen_ai_response_id: Schema.NullOr(Schema.String),
  scored_by: Schema.String,
  created_at: Schema.String
}).annotate({ identifier: "EvalScore" })

const Results = Schema.Struct({
  eval_job_id: Schema.String,
  scores: Schema.Array(Score),
  verdict: Schema.optionalKey(Verdict),
  aggregate_score: Schema.optionalKey(Schema.Finite),
  result: Schema.Struct({
    status: Schema.Literals(evalJobStatuses),
    pass_threshold: Schema.Finite,
    expected_count: Schema.Int,
    scored_count: Schema.Int,
    score_count: Schema.Int,
    completed_at: Schema.NullOr(Schema.String)
  })
}).annotate({ identifier: "EvalResults" })

const Version = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 2_147_483_647 }))
const Limit = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 500 }))
const ScoreLimit = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 10_000 }))
const Offset = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 2_147_483_647 }))
const SnapshotId = Schema.Union([RequiredText, Schema.Int])

const params = { id: Schema.String }

export class EvalJobGroup extends HttpApiGroup.make("eval_job")
  .add(
    HttpApiEndpoint.get("list", "/management/eval_job/list", {
      query: {
        limit: Schema.optionalKey(Limit),
        offset: Schema.optionalKey(Offset),
        status: Schema.optionalKey(Schema.Literals(evalJobStatuses)),
        tenant: Schema.optionalKey(ShortText)
      },
      success: Schema.Struct({ jobs: Schema.Array(EvalJob), total: Schema.Int })
    }).annotateMerge(operation("administrator_read", 200, 400, 401, 403)),
    HttpApiEndpoint.post("create", "/management/eval_job/new", {
      payload: Schema.Struct({
        eval_suite_id: RequiredText,
        eval_suite_version: nullable(Version),
        model_asset_id: nullable(ShortText),
        model_version: nullable(ShortText),
        judge_model_version: nullable(ShortText),
        dataset_snapshot_ids: nullable(Schema.Array(SnapshotId).check(Schema.isMaxLength(1000))),
        reproducibility_seed: nullable(Schema.Int)
      }).annotate({ identifier: "EvalJobCreation" }),
      success: Schema.Struct({
        eval_job_id: Schema.String,
        pipeline_run_id: Schema.String,
        status: Schema.Literals(evalJobStatuses)
      }).pipe(HttpApiSchema.status(201))
    }).annotateMerge(operation("administrator", 201, 400, 401, 403)),
    HttpApiEndpoint.get("find", "/management/eval_job/:id", { params, success: EvalJob }).annotateMerge(
      operation("administrator_read", 200, 401, 403, 404)
    ),
    HttpApiEndpoint.get("results", "/management/eval_job/:id/results", {
      params,
      query: { limit: Schema.optionalKey(ScoreLimit), offset: Schema.optionalKey(Offset) },
      success: Results
    }).annotateMerge(operation("administrator_read", 200, 401, 403, 404))
  )
  .middleware(JsonBody)
  .middleware(ManagementAccess)
  .middleware(Enveloped) {}

const WorkItem = Schema.Struct({
  eval_job_id: Schema.String,
  test_case_id: Schema.String,
  input: Schema.Json,
  expected: Schema.optionalKey(Schema.Json),
  metadata: Schema.Record(Schema.String, Schema.Json),
  weight: Schema.Finite,
  /** The pinned conditions, to be sent with the prompt. */
  seed: Schema.NullOr(Schema.Int),
  temperature: Schema.Finite,
  model_asset_id: Schema.NullOr(Schema.String),
  model_version: Schema.NullOr(Schema.String),
  lease_id: Schema.String,
  lease_expires_at: Schema.String,
  attempt: Schema.Int
}).annotate({ identifier: "EvalWorkItem" })

const LongText = Schema.String.check(
  Schema.isMaxLength(16_384),
  Schema.makeFilter(isStorableText, { expected: "text without NUL characters" })
)

export class EvalWorkerGroup extends HttpApiGroup.make("eval_worker")
  .add(
    HttpApiEndpoint.post("pull", "/v1/eval_job/:id/pull", {
      params,
      payload: Schema.Struct({
        worker_id: RequiredText,
        batch_size: nullable(Schema.Int.check(Schema.isGreaterThanOrEqualTo(1)))
      }).annotate({ identifier: "EvalPull" }),
      success: Schema.Struct({ items: Schema.Array(WorkItem) })
    }).annotateMerge(operation("model", 200, 400, 401)),
    HttpApiEndpoint.post("score", "/v1/scores", {
      payload: Schema.Struct({
        eval_job_id: RequiredText,
        test_case_id: RequiredText,
        score: Schema.Finite.check(Schema.isBetween({ minimum: 0, maximum: 1 })),
        label: nullable(ShortText),
        explanation: nullable(LongText),
        gen_ai_response_id: nullable(ShortText),
        scored_by: nullable(ShortText)
      }).annotate({ identifier: "EvalScoreIngest" }),
      success: Schema.Struct({
        pending: Schema.Boolean,
        completed: Schema.Boolean,
        score_count: Schema.Int,
        verdict: Schema.optionalKey(Verdict),
        aggregate_score: Schema.optionalKey(Schema.Finite)
      }).annotate({ identifier: "EvalScoreIngested" })
    }).annotateMerge(operation("model", 200, 400, 401, 404))
  )
  .middleware(JsonBody)
  .middleware(ModelAccess)
  .middleware(Enveloped) {}
