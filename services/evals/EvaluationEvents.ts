import { Context } from "effect"

/** What the OpenTelemetry event `gen_ai.evaluation.result` says (GenAI semantic conventions). */
export interface EvaluationResult {
  readonly tenant: string
  readonly evalJobId: string
  readonly testCaseId: string
  readonly score: number
  readonly label: string | null
  readonly explanation: string | null
  readonly genAiResponseId: string | null
  readonly scoredBy: string
  /** Unix milliseconds. */
  readonly at: number
}

/**
 * Where each ingested score is published, once it is committed; undefined: nowhere. Called synchronously; must neither
 * block nor throw.
 */
export const EvaluationEvents = Context.Reference<((result: EvaluationResult) => void) | undefined>(
  "sluice/evals/EvaluationEvents",
  { defaultValue: () => undefined }
)
