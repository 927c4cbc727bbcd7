/** The envelope as the contract declares it: one schema a row of the table of management-api.md, "Errors". */
import { Schema, SchemaGetter } from "effect"
import { HttpApiSchema } from "effect/http-api"
import * as errors from "#domain/errors.ts"

type Row<Code extends string, E> = new (failure: errors.Failure<Code>) => E

const row = <E extends errors.GatewayError>(
  identifier: string,
  status: number,
  type: string,
  codes: ReadonlyArray<E["code"]>,
  errorClass: Row<E["code"], E>
) =>
  Schema.Struct({
    error: Schema.Struct({
      message: Schema.String,
      type: Schema.Literal(type),
      code: Schema.Literals(codes),
      param: Schema.optionalKey(Schema.String)
    })
  })
    .annotate({ identifier })
    .pipe(
      Schema.decodeTo(Schema.instanceOf(errorClass), {
        decode: SchemaGetter.transform(({ error }) => new errorClass(error)),
        encode: SchemaGetter.transform((error) => errors.envelopeOf(error))
      }),
      HttpApiSchema.status(status)
    )

const validation = row("ValidationError", 400, "validation_error", errors.validationCodes, errors.ValidationFailed)
const invalid = row(
  "InvalidRequestError",
  400,
  "invalid_request_error",
  errors.invalidRequestCodes,
  errors.InvalidRequest
)
const authentication = row(
  "AuthenticationError",
  401,
  "authentication_error",
  errors.authenticationCodes,
  errors.Unauthenticated
)
const permission = row("PermissionError", 403, "permission_error", errors.permissionCodes, errors.PermissionDenied)
const absent = row("NotFoundError", 404, "not_found_error", errors.notFoundCodes, errors.NotFound)
const conflict = row("ConflictError", 409, "conflict_error", errors.conflictCodes, errors.Conflict)
const tooLarge = row("ResultTooLargeError", 413, "invalid_request_error", errors.tooLargeCodes, errors.ResultTooLarge)
const guardrail = row("GuardrailError", 422, "unprocessable_entity", errors.guardrailCodes, errors.GuardrailBlocked)
const rateLimit = row("RateLimitError", 429, "rate_limit_error", errors.rateLimitCodes, errors.RateLimited)
const internal = row("InternalError", 500, "api_error", errors.internalCodes, errors.InternalFailure)
const badGateway = row("BadGatewayError", 502, "bad_gateway", errors.badGatewayCodes, errors.UpstreamFailed)
const unavailable = row("UnavailableError", 503, "service_unavailable", errors.unavailableCodes, errors.Unavailable)
const timeout = row("TimeoutError", 504, "timeout_error", errors.timeoutCodes, errors.UpstreamTimeout)

/** Everything that an operation may fail with. Which statuses an operation documents stands beside it. */
export const gatewayErrors = [
  validation,
  invalid,
  authentication,
  permission,
  absent,
  conflict,
  tooLarge,
  guardrail,
  rateLimit,
  internal,
  badGateway,
  unavailable,
  timeout
] as const
