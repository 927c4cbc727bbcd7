import type { SqlClient } from "effect/sql"
import type { EvalJob, EvalJobStatus, PinnedSnapshot, Verdict } from "#domain/evals.ts"

export interface JobRow {
  readonly id: string
  readonly tenant: string
  readonly organization_id: string
  readonly eval_suite_id: string
  readonly eval_suite_version: number
  readonly model_asset_id: string | null
  readonly model_version: string | null
  readonly judge_model_version: string | null
  readonly dataset_snapshots: ReadonlyArray<{
    readonly snapshot_id: string
    readonly asset_id: string
    readonly version: number
    readonly content_hash: string
  }>
  readonly reproducibility_seed: bigint | null
  readonly pass_threshold: number
  readonly pipeline_run_id: string
  readonly status: EvalJobStatus
  readonly expected_count: number
  readonly scored_count: number
  readonly score_count: number
  readonly aggregate_score: number | null
  readonly verdict: Verdict | null
  readonly created_by: string
  readonly created_at: Date
  readonly completed_at: Date | null
}

export const jobColumns = (sql: SqlClient.SqlClient) =>
  sql.literal(`id, tenant, organization_id, eval_suite_id, eval_suite_version, model_asset_id, model_version,
    judge_model_version, dataset_snapshots, reproducibility_seed, pass_threshold, pipeline_run_id, status, expected_count,
    scored_count, score_count, aggregate_score, verdict, created_by, created_at, completed_at`)

const snapshotOf = (row: JobRow["dataset_snapshots"][number]): PinnedSnapshot => ({
  snapshotId: row.snapshot_id,
  assetId: row.asset_id,
  version: row.version,
  contentHash: row.content_hash
})

export const jobOf = (row: JobRow, pipelineRunStatus: string): EvalJob => ({
  id: row.id,
  tenant: row.tenant,
  organizationId: row.organization_id,
  suiteId: row.eval_suite_id,
  suiteVersion: row.eval_suite_version,
  modelAssetId: row.model_asset_id,
  modelVersion: row.model_version,
  judgeModelVersion: row.judge_model_version,
  snapshots: row.dataset_snapshots.map(snapshotOf),
  seed: row.reproducibility_seed === null ? null : Number(row.reproducibility_seed),
  passThreshold: row.pass_threshold,
  pipelineRunId: row.pipeline_run_id,
  pipelineRunStatus,
  status: row.status,
  expectedCount: row.expected_count,
  scoredCount: row.scored_count,
  scoreCount: row.score_count,
  aggregateScore: row.aggregate_score ?? undefined,
  verdict: row.verdict ?? undefined,
  createdBy: row.created_by,
  createdAt: row.created_at.getTime(),
  completedAt: row.completed_at?.getTime()
})
