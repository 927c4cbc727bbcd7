/** The one place where failures become responses. */
import { Cause, Effect } from "effect"
import { HttpServerResponse } from "effect/http"
import { HttpApiError } from "effect/http-api"
import {
  envelopeOf,
  internalFailure,
  isGatewayError,
  type GatewayError,
  NotFound,
  ValidationFailed
} from "#domain/errors.ts"
import { firstIssue } from "#http/schema-issues.ts"

/** The headers that go with a failure besides the envelope. */
export const failureHeaders = (error: GatewayError): Record<string, string> => {
  const headers: Record<string, string> = {}
  if (error.retryAfter !== undefined) headers["retry-after"] = String(Math.max(1, Math.ceil(error.retryAfter)))
  // Official clients retry a 429 by themselves, which no budget survives.
  if (error.code === "budget_exceeded") headers["x-should-retry"] = "false"
  return headers
}

/** Whether a path is of the native messages API, whose clients read failures in Anthropic's shape. */
const isMessagesPath = (url: string): boolean => /^\/v1\/messages(?:[/?]|$)/.test(url)

/** The envelope with what Anthropic's clients look for beside it (decisions.md, section 4). */
export const messagesFailure = (error: GatewayError) => ({ type: "error", ...envelopeOf(error) })

const mayRetry = (error: GatewayError): boolean =>
  error.status >= 500 || (error.status === 429 && error.code !== "budget_exceeded")

/** The response that a failure becomes; `url` is the request's, which decides about the shape. */
export const failureResponse = (error: GatewayError, url = ""): HttpServerResponse.HttpServerResponse => {
  const native = isMessagesPath(url)
  const headers = failureHeaders(error)
  if (native) headers["x-should-retry"] = String(mayRetry(error))
  return HttpServerResponse.text(JSON.stringify(native ? messagesFailure(error) : envelopeOf(error)), {
    status: error.status,
    contentType: "application/json",
    headers
  })
}

const slotParams = { Params: "path", Headers: "header", Query: "query", Payload: "body" } as const

const fromSchemaError = (error: HttpApiError.HttpApiSchemaError): GatewayError => {
  if (error.kind === "Body" || error.kind === "ResponseHeaders") return internalFailure
  return firstIssue(error.cause.issue, slotParams[error.kind])
}

/** A failure, defects included, as a row of the envelope; undefined: the request was interrupted. */
export const gatewayErrorOf = (cause: Cause.Cause<unknown>): GatewayError | undefined => {
  for (const reason of cause.reasons) {
    if (reason._tag === "Interrupt") continue
    const error = reason._tag === "Fail" ? reason.error : reason.defect
    if (isGatewayError(error)) return error
    if (HttpApiError.HttpApiSchemaError.is(error)) return fromSchemaError(error)
    return internalFailure
  }
  return undefined
}

/** Logs what a 5XX must not show. */
export const logUnexpected = (
  error: GatewayError,
  cause: Cause.Cause<unknown>,
  requestId: string
): Effect.Effect<void> =>
  error.status < 500 || (error.status === 503 && error.code !== "database_unavailable")
    ? Effect.void
    : Effect.logError("request failed", Cause.pretty(cause)).pipe(
        Effect.annotateLogs({ request_id: requestId, status: error.status, code: error.code })
      )

export const routeNotFound = new NotFound({ code: "route_not_found", message: "There is no such route." })

export const malformedJson = (message: string) => new ValidationFailed({ code: "malformed_json", message })
