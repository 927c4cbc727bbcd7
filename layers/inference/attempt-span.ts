/** One try of one deployment as a span: HTTP's conventions, and the deployment's own name of the model. */
import type { GatewayError } from "#domain/errors.ts"
import { genAiProvider } from "#domain/gen-ai.ts"
import type { Deployment } from "#layers/inference/Deployment.ts"
import type { WireRequest } from "#services/inference/Wire.ts"
import type { Span } from "#services/telemetry/Tracing.ts"

/** Which try it is. */
export interface AttemptNumber {
  /** Of the call, from 1. */
  readonly ordinal: number
  /** Of this deployment, from 0. */
  readonly retries: number
}

/**
 * The logical call is the parent, and alone carries `gen_ai.operation.name` and usage: whoever adds them up over spans
 * shall not count a call twice.
 */
export const openAttempt = (
  parent: Span,
  deployment: Deployment,
  request: WireRequest,
  { ordinal, retries }: AttemptNumber
): Span => {
  const { origin } = deployment.wire
  const { deploymentId, provider, upstreamModel } = deployment.served
  const span = parent.child(`attempt ${upstreamModel}`, "client")
  if (!span.recording) return span
  const colon = origin.lastIndexOf(":")
  const secure = origin.startsWith("https:")
  const port = Number(origin.slice(colon + 1))
  const named = colon > 5 && Number.isInteger(port)
  // Neither path nor query: some upstreams take their key there.
  span.set("http.request.method", request.method)
  span.set("server.address", origin.slice(origin.indexOf("//") + 2, named ? colon : undefined))
  span.set("server.port", named ? port : secure ? 443 : 80)
  span.set("gen_ai.provider.name", genAiProvider(provider))
  span.set("gen_ai.request.model", upstreamModel)
  span.set("sluice.deployment_id", deploymentId)
  span.set("sluice.attempt", ordinal)
  if (retries > 0) span.set("http.request.resend_count", retries)
  return span
}

/** The first bytes for the client are there. `sinceMs` counts from when the try was sent. */
export const tellFirstChunk = (span: Span, sinceMs: number): void => {
  span.event("sluice.first_chunk")
  span.measure("gen_ai.response.time_to_first_chunk", sinceMs / 1000)
}

export const endFailedAttempt = (span: Span, error: GatewayError): void => {
  span.error(error.code, true)
  span.end()
}

/** The caller has gone. */
export const endAbandonedAttempt = (span: Span): void => {
  span.set("sluice.status", "cancelled")
  span.end()
}
