/** Model calls and scores in the words of OpenTelemetry's GenAI semantic conventions. No prompts, answers or secrets. */
import { Context, Exit, Option, type Tracer } from "effect"
import { evaluationEvent } from "#domain/evals.ts"
import type { ModelOperation } from "#domain/operations.ts"
import { dollarsNumber } from "#domain/money.ts"
import { completionTokens, promptTokens } from "#domain/usage.ts"
import type { EvaluationResult } from "#services/evals/EvaluationEvents.ts"
import type { Outcome } from "#services/usage/UsageLedger.ts"

/** `gen_ai.operation.name`; what the conventions have no name for keeps ours. */
const operationNames: Readonly<Partial<Record<ModelOperation, string>>> = {
  chat: "chat",
  messages: "chat",
  completion: "text_completion",
  embedding: "embeddings",
  generate_content: "generate_content"
}

/** `gen_ai.provider.name` where the conventions name a provider differently. */
const providerNames: Readonly<Record<string, string>> = {
  azure: "azure.ai.openai",
  bedrock: "aws.bedrock",
  gemini: "gcp.gemini",
  mistral: "mistral_ai",
  xai: "x_ai"
}

const nanos = (millis: number): bigint => BigInt(Math.round(millis)) * 1_000_000n

const attributesOf = (outcome: Outcome): ReadonlyArray<readonly [name: string, value: unknown]> => [
  ["gen_ai.operation.name", operationNames[outcome.operation] ?? outcome.operation],
  ["gen_ai.request.model", outcome.model],
  [
    "gen_ai.provider.name",
    outcome.provider === null ? undefined : (providerNames[outcome.provider] ?? outcome.provider)
  ],
  ["gen_ai.response.model", outcome.upstreamModel ?? undefined],
  ["gen_ai.usage.input_tokens", promptTokens(outcome.usage)],
  ["gen_ai.usage.output_tokens", completionTokens(outcome.usage)],
  ["gen_ai.usage.cache_read.input_tokens", outcome.usage.cacheRead || undefined],
  ["gen_ai.usage.cache_creation.input_tokens", outcome.usage.cacheWrite || undefined],
  ["http.response.status_code", outcome.httpStatus],
  ["error.type", outcome.errorCode ?? undefined],
  ["sluice.request_id", outcome.requestId],
  ["sluice.call_id", outcome.callId],
  ["sluice.tenant", outcome.tenant === "" ? undefined : outcome.tenant],
  ["sluice.key_id", outcome.keyId ?? undefined],
  ["sluice.deployment_id", outcome.deploymentId ?? undefined],
  ["sluice.status", outcome.status],
  ["sluice.stream", outcome.stream],
  ["sluice.cost_usd", dollarsNumber(outcome.cost)]
]

/** One span a finished call, from its admission to its record; its guardrails and its first byte are events of it. */
export const spanOf = (tracer: Tracer.Tracer, outcome: Outcome): void => {
  const span = tracer.span({
    name: `${operationNames[outcome.operation] ?? outcome.operation} ${outcome.model}`,
    parent: Option.none(),
    annotations: Context.empty(),
    links: [],
    startTime: nanos(outcome.startedAt),
    kind: "client",
    root: true,
    sampled: true
  })
  for (const [name, value] of attributesOf(outcome)) if (value !== undefined) span.attribute(name, value)
  if (outcome.firstByteMs !== null) span.event("sluice.first_byte", nanos(outcome.startedAt + outcome.firstByteMs))
  for (const guardrail of outcome.guardrails) {
    span.event("sluice.guardrail", nanos(guardrail.stage === "pre" ? outcome.startedAt : outcome.recordedAt), {
      "sluice.guardrail.id": guardrail.guardrailId,
      "sluice.guardrail.name": guardrail.guardrailName,
      "sluice.guardrail.stage": guardrail.stage,
      "sluice.guardrail.status": guardrail.status,
      "sluice.guardrail.duration_ms": guardrail.durationMs
    })
  }
  span.end(
    nanos(outcome.recordedAt),
    outcome.status === "error" || outcome.status === "blocked"
      ? Exit.fail(outcome.errorCode ?? outcome.status)
      : Exit.void
  )
}

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
