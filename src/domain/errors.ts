/**
 * The envelope's vocabulary (management-api.md, "Errors"; decisions.md, section 4): one class a row of its table, with
 * the codes that the row may carry. Services fail with these, the contract declares them, and nothing else turns a
 * failure into a status.
 */
import { Data } from "effect"
import type { Limit } from "#domain/limits.ts"

/** The JSON body of every failure. */
export interface Envelope<Code extends string = string> {
  readonly error: {
    readonly message: string
    readonly type: string
    readonly code: Code
    readonly param?: string
  }
}

/** What every row shares. `param` is the JSON path at fault, `retryAfter` whole seconds. */
export interface Failure<Code extends string> {
  readonly code: Code
  readonly message: string
  readonly param?: string | undefined
  readonly retryAfter?: number | undefined
}

export const validationCodes = [
  "missing_field",
  "invalid_format",
  "invalid_value",
  "value_too_long",
  "malformed_json"
] as const
export const invalidRequestCodes = [
  "unsupported_parameter",
  "invalid_conversation",
  "context_length_exceeded",
  "unsupported_model",
  "developer_key_limit",
  "already_exists",
  "idempotency_key_reused",
  "invalid_state"
] as const
export const authenticationCodes = ["invalid_session"] as const
export const permissionCodes = [
  "insufficient_permissions",
  "tenant_override_forbidden",
  "tenant_mismatch",
  "sql_read_only",
  "control_plane_only"
] as const
export const notFoundCodes = ["resource_not_found", "model_not_found", "route_not_found"] as const
export const conflictCodes = ["already_exists", "idempotency_key_reused", "invalid_state"] as const
export const tooLargeCodes = ["result_too_large"] as const
export const guardrailCodes = ["guardrail_blocked"] as const
export const rateLimitCodes = ["rate_limit_exceeded", "token_limit_exceeded", "budget_exceeded"] as const
export const internalCodes = ["internal_error"] as const
export const badGatewayCodes = ["upstream_error"] as const
export const unavailableCodes = [
  "overloaded",
  "draining",
  "workflow_engine_not_configured",
  "workflow_engine_unavailable",
  "query_engine_not_configured",
  "query_engine_unavailable",
  "database_unavailable"
] as const
export const timeoutCodes = ["upstream_timeout"] as const

/** 400: the body is malformed, a required field is missing, a value is outside its domain. */
export class ValidationFailed extends Data.TaggedError("ValidationFailed")<Failure<(typeof validationCodes)[number]>> {
  readonly status = 400
  readonly type = "validation_error"
}

/** 400: well-formed but logically invalid; also a conflict where the operation documents no 409. */
export class InvalidRequest extends Data.TaggedError("InvalidRequest")<Failure<(typeof invalidRequestCodes)[number]>> {
  readonly status = 400
  readonly type = "invalid_request_error"
}

/** 401: one constant body, whatever the cause (decisions.md, section 3). */
export class Unauthenticated extends Data.TaggedError("Unauthenticated")<
  Failure<(typeof authenticationCodes)[number]>
> {
  readonly status = 401
  readonly type = "authentication_error"
}

/** 403: known, but not allowed. */
export class PermissionDenied extends Data.TaggedError("PermissionDenied")<Failure<(typeof permissionCodes)[number]>> {
  readonly status = 403
  readonly type = "permission_error"
}

/** 404: does not exist, or the caller may not know that it does. */
export class NotFound extends Data.TaggedError("NotFound")<Failure<(typeof notFoundCodes)[number]>> {
  readonly status = 404
  readonly type = "not_found_error"
}

/** 409: only where the operation documents it; `Conflict.asInvalidRequest` elsewhere. */
export class Conflict extends Data.TaggedError("Conflict")<Failure<(typeof conflictCodes)[number]>> {
  readonly status = 409
  readonly type = "conflict_error"
}

/** 413: an SQL result over the row cap. */
export class ResultTooLarge extends Data.TaggedError("ResultTooLarge")<Failure<(typeof tooLargeCodes)[number]>> {
  readonly status = 413
  readonly type = "invalid_request_error"
}

/** 422: a guardrail rejected the prompt or the response; `param` names the guardrail. */
export class GuardrailBlocked extends Data.TaggedError("GuardrailBlocked")<Failure<(typeof guardrailCodes)[number]>> {
  readonly status = 422
  readonly type = "unprocessable_entity"
}

/** 429: request rate, token rate or dollars. */
export class RateLimited extends Data.TaggedError("RateLimited")<
  Failure<(typeof rateLimitCodes)[number]> & {
    /** Of a refusal of the gateway's own: the limit that it holds to. Never shown. */
    readonly limit?: Limit
  }
> {
  readonly status = 429
  readonly type = "rate_limit_error"
}

/** 500: unexpected; the cause is logged with the request id and never shown. */
export class InternalFailure extends Data.TaggedError("InternalFailure")<Failure<(typeof internalCodes)[number]>> {
  readonly status = 500
  readonly type = "api_error"
}

/** 502: the upstream provider answered with something unrecoverable. */
export class UpstreamFailed extends Data.TaggedError("UpstreamFailed")<Failure<(typeof badGatewayCodes)[number]>> {
  readonly status = 502
  readonly type = "bad_gateway"
}

/** 503: overloaded, draining, or something the gateway depends on is away. */
export class Unavailable extends Data.TaggedError("Unavailable")<Failure<(typeof unavailableCodes)[number]>> {
  readonly status = 503
  readonly type = "service_unavailable"
}

/** 504: the upstream provider did not answer in time. */
export class UpstreamTimeout extends Data.TaggedError("UpstreamTimeout")<Failure<(typeof timeoutCodes)[number]>> {
  readonly status = 504
  readonly type = "timeout_error"
}

/** Every failure that a caller can see. */
export type GatewayError =
  | ValidationFailed
  | InvalidRequest
  | Unauthenticated
  | PermissionDenied
  | NotFound
  | Conflict
  | ResultTooLarge
  | GuardrailBlocked
  | RateLimited
  | InternalFailure
  | UpstreamFailed
  | Unavailable
  | UpstreamTimeout

const classes = [
  ValidationFailed,
  InvalidRequest,
  Unauthenticated,
  PermissionDenied,
  NotFound,
  Conflict,
  ResultTooLarge,
  GuardrailBlocked,
  RateLimited,
  InternalFailure,
  UpstreamFailed,
  Unavailable,
  UpstreamTimeout
] as const

/** Whether a failure is one of the envelope's rows. */
export const isGatewayError = (u: unknown): u is GatewayError => classes.some((row) => u instanceof row)

/** The body that a failure becomes. */
export const envelopeOf = <E extends GatewayError>(error: E): Envelope<E["code"]> => ({
  error: {
    message: error.message,
    type: error.type,
    code: error.code,
    ...(error.param === undefined ? {} : { param: error.param })
  }
})

export const missingField = (param: string) =>
  new ValidationFailed({ code: "missing_field", message: `'${param}' is required.`, param })

export const invalidValue = (param: string, message: string) =>
  new ValidationFailed({ code: "invalid_value", message, param })

export const invalidFormat = (param: string, message: string) =>
  new ValidationFailed({ code: "invalid_format", message, param })

/** A resource that is not there for this caller. */
export const notFound = (resource: string) =>
  new NotFound({ code: "resource_not_found", message: `The ${resource} was not found.` })

/** Rows of a tenant that was taken out of GATEWAY_TENANTS: they may be read where they lie in `public`, and no more. */
export const tenantNotProvisioned = (tenant: string) =>
  new NotFound({ code: "resource_not_found", message: `The tenant '${tenant.slice(0, 64)}' is not provisioned.` })

export const modelNotFound = (model: string) =>
  new NotFound({
    code: "model_not_found",
    message: `The model '${model.slice(0, 200)}' does not exist or is not available to this key.`,
    param: "model"
  })

export const managementUnauthenticated = new Unauthenticated({
  code: "invalid_session",
  message: "Developer session is invalid or expired."
})

export const modelUnauthenticated = new Unauthenticated({
  code: "invalid_session",
  message: "API key is invalid or expired."
})

export const forbidden = (message = "This caller may not perform this operation.") =>
  new PermissionDenied({ code: "insufficient_permissions", message })

export const databaseUnavailable = new Unavailable({
  code: "database_unavailable",
  message: "The gateway's database cannot be reached.",
  retryAfter: 1
})

export const internalFailure = new InternalFailure({
  code: "internal_error",
  message: "The gateway failed to handle the request."
})
