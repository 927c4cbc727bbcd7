/** Scores in the words of OpenTelemetry's GenAI semantic conventions. */
import { evaluationEvent } from "#domain/evals.ts"
import type { EvaluationResult } from "#services/evals/EvaluationEvents.ts"

const nanos = (millis: number): bigint => BigInt(Math.round(millis)) * 1_000_000n

type Attribute = {
  readonly key: string
  readonly value: { readonly stringValue: string } | { readonly doubleValue: number }
}

const text = (key: string, value: string | null): ReadonlyArray<Attribute> =>
  value === null || value === "" ? [] : [{ key, value: { stringValue: value } }]

/** The log record of a score: the event `gen_ai.evaluation.result`. */
export const evaluationRecord = (result: EvaluationResult) => ({
  eventName: evaluationEvent,
  timeUnixNano: String(nanos(result.at)),
  observedTimeUnixNano: String(nanos(result.at)),
  severityNumber: 9,
  severityText: "INFO",
  droppedAttributesCount: 0,
  attributes: [
    // For collectors that do not know a record's event name yet.
    ...text("event.name", evaluationEvent),
    ...text("gen_ai.evaluation.name", result.scoredBy),
    { key: "gen_ai.evaluation.score.value", value: { doubleValue: result.score } },
    ...text("gen_ai.evaluation.score.label", result.label),
    ...text("gen_ai.evaluation.explanation", result.explanation),
    ...text("gen_ai.response.id", result.genAiResponseId),
    ...text("sluice.eval_job_id", result.evalJobId),
    ...text("sluice.test_case_id", result.testCaseId),
    ...text("sluice.tenant", result.tenant)
  ]
})
