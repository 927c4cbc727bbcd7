/** What is told of a model call where it is traced. Nothing here runs where it is not. */
import { Effect, Exit } from "effect"
import { type GatewayError, isGatewayError } from "#domain/errors.ts"
import { genAiOperation, genAiProvider } from "#domain/gen-ai.ts"
import type { GuardrailEvent } from "#domain/guardrails.ts"
import { dollarsNumber } from "#domain/money.ts"
import { tenantOf } from "#domain/principal.ts"
import { completionTokens, promptTokens } from "#domain/usage.ts"
import type { GuardrailVerdict } from "#services/guardrails/GuardrailEngine.ts"
import type { ModelCall } from "#services/inference/ModelCalls.ts"
import type { Span, TracingShape } from "#services/telemetry/Tracing.ts"
import type { Outcome } from "#services/usage/UsageLedger.ts"

/** The span of a call, within its request's or its step's, from before its admission to after its record. */
export const openCall = (tracing: TracingShape, call: ModelCall): Span => {
  const operation = genAiOperation(call.operation)
  const name = `${operation} ${call.model}`
  const span = call.span === undefined ? tracing.start(name, "client") : call.span.child(name, "client")
  if (!span.recording) return span
  span.set("gen_ai.operation.name", operation)
  span.set("gen_ai.request.model", call.model)
  if (call.stream) span.set("gen_ai.request.stream", true)
  span.set("sluice.request_id", call.requestId)
  const tenant = tenantOf(call.caller)
  if (tenant !== "") span.set("sluice.tenant", tenant)
  if (call.caller._tag === "ApiKey") {
    const { id, organizationId, teamId } = call.caller.key
    span.set("sluice.key_id", id)
    span.set("sluice.team_id", teamId)
    span.set("sluice.organization_id", organizationId)
  }
  return span
}

/** Ends the span of a call that was not admitted. */
export const endRefused = (span: Span, error: GatewayError): void => {
  span.set("http.response.status_code", error.status)
  span.set("sluice.status", "refused")
  span.error(error.code, true)
  span.end()
}

/** Ends the span of a call with what its record says. */
export const endCall = (span: Span, outcome: Outcome): void => {
  if (!span.recording) return
  const { errorCode, firstByteMs, usage } = outcome
  if (outcome.provider !== null) span.set("gen_ai.provider.name", genAiProvider(outcome.provider))
  span.set("gen_ai.response.model", outcome.upstreamModel)
  span.set("gen_ai.usage.input_tokens", promptTokens(usage))
  span.set("gen_ai.usage.output_tokens", completionTokens(usage))
  if (usage.cacheRead > 0) span.set("gen_ai.usage.cache_read.input_tokens", usage.cacheRead)
  if (usage.cacheWrite > 0) span.set("gen_ai.usage.cache_creation.input_tokens", usage.cacheWrite)
  if (outcome.stream && firstByteMs !== null) span.measure("gen_ai.response.time_to_first_chunk", firstByteMs / 1000)
  span.set("http.response.status_code", outcome.httpStatus)
  span.set("sluice.call_id", outcome.callId)
  span.set("sluice.deployment_id", outcome.deploymentId)
  span.set("sluice.status", outcome.status)
  if (usage.estimated) span.set("sluice.usage_estimated", true)
  span.measure("sluice.cost_usd", dollarsNumber(outcome.cost))
  if (errorCode !== null) span.error(errorCode, true)
  span.end()
}

/** Each guardrail that ran, on the span in which it did. */
export const tellGuardrails = (span: Span, events: ReadonlyArray<GuardrailEvent>): void => {
  if (!span.recording) return
  for (const event of events) {
    span.event("sluice.guardrail", {
      "sluice.guardrail.id": event.guardrailId,
      "sluice.guardrail.name": event.guardrailName,
      "sluice.guardrail.stage": event.stage,
      "sluice.guardrail.status": event.status
    })
  }
}

/** Runs an effect in a child span; `tell` is given what it returned. */
export const within = <A, E, R>(
  parent: Span,
  name: string,
  run: (span: Span) => Effect.Effect<A, E, R>,
  tell?: (span: Span, value: A) => void
): Effect.Effect<A, E, R> =>
  Effect.suspend(() => {
    const span = parent.child(name, "internal")
    return Effect.onExit(run(span), (exit) =>
      Effect.sync(() => {
        if (Exit.isSuccess(exit)) tell?.(span, exit.value)
        else {
          const failure = exit.cause.reasons.find((reason) => reason._tag === "Fail")?.error
          if (isGatewayError(failure)) span.error(failure.code, true)
        }
        span.end()
      })
    )
  })

/** What guardrails decided, on the span in which they ran. A block is what they are for and no failure of theirs. */
export const tellVerdict = (span: Span, { blocked, events }: GuardrailVerdict): void => {
  tellGuardrails(span, events)
  if (blocked !== undefined) span.error(blocked.code, false)
}
