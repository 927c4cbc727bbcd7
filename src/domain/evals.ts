/** Eval jobs, leases and scores (decisions.md, section 10.3). */

export const evalJobStatuses = ["created", "running", "completed", "failed", "cancelled"] as const
export type EvalJobStatus = (typeof evalJobStatuses)[number]

export type Verdict = "pass" | "fail"

/** A suite without a threshold of its own passes from here. */
export const defaultPassThreshold = 0.5

/** Work items of one pull: what is asked for where nothing is said, and the most that is given. */
export const defaultBatchSize = 10
export const maxBatchSize = 500

/** The name of the OpenTelemetry event of a score, and of its provenance entry. */
export const evaluationEvent = "gen_ai.evaluation.result"

/** One score, as it was counted. */
export interface EvalScore {
  readonly testCaseId: string
  /** In [0, 1]. */
  readonly score: number
  readonly label: string | null
  readonly explanation: string | null
  readonly genAiResponseId: string | null
  readonly scoredBy: string
  /** Unix milliseconds. */
  readonly createdAt: number
}

/** The version of a dataset that a job evaluates, and the name by which it was pinned. */
export interface PinnedSnapshot {
  readonly snapshotId: string
  readonly assetId: string
  readonly version: number
  readonly contentHash: string
}

/** An eval job. `aggregateScore` and `verdict` are there when it is decided. */
export interface EvalJob {
  readonly id: string
  readonly tenant: string
  readonly organizationId: string
  readonly suiteId: string
  readonly suiteVersion: number
  readonly modelAssetId: string | null
  readonly modelVersion: string | null
  readonly judgeModelVersion: string | null
  readonly snapshots: ReadonlyArray<PinnedSnapshot>
  readonly seed: number | null
  readonly passThreshold: number
  readonly pipelineRunId: string
  readonly pipelineRunStatus: string
  readonly status: EvalJobStatus
  readonly expectedCount: number
  readonly scoredCount: number
  readonly scoreCount: number
  readonly aggregateScore: number | undefined
  readonly verdict: Verdict | undefined
  readonly createdBy: string
  /** Unix milliseconds. */
  readonly createdAt: number
  readonly completedAt: number | undefined
}

/** The temperature that every job is pinned to (management-api.md, "eval_job", rule 3). */
export const pinnedTemperature = 0
