/**
 * Failed tries, judged (decisions.md, section 7.2). What an upstream says reaches the client only where the request is
 * at fault, bounded and without anything that looks like a credential.
 */
import { InvalidRequest, RateLimited, UpstreamFailed, UpstreamTimeout, type GatewayError } from "#domain/errors.ts"
import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"
import { parseJson } from "#layers/inference/wires/values.ts"
import type { Remedy, UpstreamProblem, WireHeaders, WireResponse } from "#services/inference/Wire.ts"

const longestMessage = 1_000

interface Judgement {
  readonly unhealthy?: boolean
  readonly retryAfterMs?: number | undefined
}

const problem = (error: GatewayError, remedy: Remedy, more: Judgement = {}): UpstreamProblem => ({
  _tag: "UpstreamProblem",
  error,
  remedy,
  unhealthy: more.unhealthy ?? remedy !== "none",
  retryAfterMs: more.retryAfterMs
})

/** Also of what an upstream wrote: JSON may claim any tag, but holds no error. */
export const isProblem = (value: object): value is UpstreamProblem =>
  "_tag" in value && value._tag === "UpstreamProblem" && "error" in value && value.error instanceof Error

const failed = (message: string) => new UpstreamFailed({ code: "upstream_error", message })

/** The connection failed, or broke before the answer was whole. `what` is the gateway's own wording. */
export const connectionProblem = (what: string): UpstreamProblem =>
  problem(failed(`The upstream provider could not be reached: ${what}.`), "retry")

/** A 2xx answer or event that cannot be read. */
export const malformedAnswer = (what: string): UpstreamProblem =>
  problem(failed(`The upstream provider's answer is malformed: ${what}.`), "retry")

/** The object that the body of a 2xx answer must be. */
export const readAnswer = (body: Buffer): JsonObject | UpstreamProblem => {
  const answer = parseJson(body)
  return isJsonObject(answer) ? answer : malformedAnswer("it is not a JSON object")
}

/** A 2xx answer that says it is none. */
export const errorInSuccess: UpstreamProblem = malformedAnswer("it reports an error with a status of success")

/** The stream stopped before its end. */
export const streamCut: UpstreamProblem = problem(
  failed("The upstream provider ended the stream before the answer was complete."),
  "retry"
)

/** The settings do not allow the call to leave: a refused address, a signature that cannot be made. */
export const refusedToSend = (why: string): UpstreamProblem =>
  problem(failed(`The upstream provider cannot be called: ${why}.`), "next")

/** A deadline passed. `which` says which one. A slow deployment is not asked again within the call. */
export const deadlinePassed = (which: string): UpstreamProblem =>
  problem(
    new UpstreamTimeout({
      code: "upstream_timeout",
      message: `The upstream provider did not answer in time: ${which}.`
    }),
    "next"
  )

/** A field of the request that this upstream cannot carry. */
export const unsupportedParameter = (param: string, provider: string): InvalidRequest =>
  new InvalidRequest({
    code: "unsupported_parameter",
    message: `'${param}' is not supported by models of the provider '${provider}'. Remove it, or set drop_params on the model.`,
    param
  })

/** The header's value, whatever the upstream did to repeat it. */
export const headerText = (headers: WireHeaders, name: string): string | undefined => {
  const value = headers[name]
  return typeof value === "string" ? value : value?.[0]
}

/** `retry-after-ms`, or `retry-after` as seconds or a date, in milliseconds from `now`; undefined: none that is usable. */
export const retryAfterMs = (headers: WireHeaders, now: number): number | undefined => {
  const exact = Number(headerText(headers, "retry-after-ms") ?? Number.NaN)
  if (Number.isFinite(exact) && exact >= 0) return exact
  const text = headerText(headers, "retry-after")?.trim()
  if (text === undefined || text === "") return undefined
  const seconds = Number(text)
  if (Number.isFinite(seconds)) return seconds >= 0 ? seconds * 1000 : undefined
  const date = Date.parse(text)
  return Number.isNaN(date) ? undefined : Math.max(0, date - now)
}

/** What an upstream's error body says. */
export interface UpstreamComplaint {
  readonly message: string | undefined
  readonly code: string | undefined
  readonly param: string | undefined
}

const noComplaint: UpstreamComplaint = { message: undefined, code: undefined, param: undefined }

const textOf = (value: Json | undefined): string | undefined =>
  typeof value === "string" && value !== "" ? value : typeof value === "number" ? String(value) : undefined

/** Reads `{error: {message, code, type, param}}` and its common relatives (`{error: "…"}`, `{message}`, `{detail}`). */
export const complaintOf = (body: JsonObject): UpstreamComplaint => {
  const inner = isJsonObject(body["error"]) ? body["error"] : body
  return {
    message: textOf(inner["message"]) ?? textOf(body["error"]) ?? textOf(body["message"]) ?? textOf(body["detail"]),
    code: textOf(inner["code"]) ?? textOf(inner["type"]) ?? textOf(inner["status"]),
    param: textOf(inner["param"])
  }
}

/** The complaint in a body's bytes; an empty one when they are no JSON object. */
export const complaintIn = (body: Buffer): UpstreamComplaint => {
  try {
    const parsed: unknown = JSON.parse(body.toString())
    const first: unknown = Array.isArray(parsed) ? parsed[0] : parsed
    return isJsonObject(first) ? complaintOf(first) : noComplaint
  } catch {
    return noComplaint
  }
}

const credentialLike = /\b(?:sk|pk|rk|key|gsk|xai|AIza|AKIA|ASIA)[-_A-Za-z0-9*]{12,}|\b(?:Bearer|Basic)\s+\S+/gi

/** An upstream's wording, bounded and without anything that looks like a credential. */
export const quoted = (message: string): string =>
  message.slice(0, longestMessage).replace(credentialLike, "[redacted]")

const contextCodes = /context_length|context_window|prompt.{0,20}too long|maximum context|max_tokens_exceeded/i

const requestCode = (complaint: UpstreamComplaint): InvalidRequest["code"] => {
  if (contextCodes.test(complaint.code ?? "") || contextCodes.test(complaint.message ?? "")) {
    return "context_length_exceeded"
  }
  if (complaint.code === "model_not_found" || complaint.param === "model") return "unsupported_model"
  if (complaint.param === undefined || /^(messages|input|prompt|contents)\b/.test(complaint.param)) {
    return "invalid_conversation"
  }
  return "unsupported_parameter"
}

const refusedRequest = (status: number, complaint: UpstreamComplaint): InvalidRequest =>
  new InvalidRequest({
    code: status === 404 ? "unsupported_model" : requestCode(complaint),
    message: quoted(complaint.message ?? `The upstream provider refused the request with status ${status}.`),
    ...(complaint.param === undefined ? {} : { param: complaint.param.slice(0, 200) })
  })

const quotaCodes = /insufficient_quota|billing|credit/i

/** Judges an answer outside 2xx by its status, its headers and what its body says. */
export const problemOfStatus = (response: WireResponse, complaint = complaintIn(response.body)): UpstreamProblem => {
  const { status } = response
  const wait = status === 429 || status >= 500 ? retryAfterMs(response.headers, Date.now()) : undefined
  if (status === 429) {
    const exhausted = quotaCodes.test(complaint.code ?? "")
    const error = new RateLimited({
      code: "rate_limit_exceeded",
      message: "The upstream provider's rate limit is reached.",
      ...(wait === undefined ? {} : { retryAfter: Math.max(1, Math.ceil(wait / 1000)) })
    })
    return problem(error, exhausted ? "next" : "retry", { unhealthy: exhausted, retryAfterMs: wait })
  }
  if (status === 408) {
    const message = "The upstream provider gave the request up with status 408."
    return problem(new UpstreamTimeout({ code: "upstream_timeout", message }), "retry")
  }
  if (status >= 500) {
    return problem(failed(`The upstream provider failed with status ${status}.`), "retry", { retryAfterMs: wait })
  }
  if (status === 401 || status === 402 || status === 403) {
    return problem(failed("The upstream provider refused the gateway's credential."), "next")
  }
  if (status === 404) return problem(refusedRequest(status, complaint), "next", { unhealthy: false })
  if (status >= 400) return problem(refusedRequest(status, complaint), "none")
  return problem(failed(`The upstream provider answered with the unexpected status ${status}.`), "next")
}

/** An error object inside a 200 stream: its code decides where it is a status, else it is the upstream's own failure. */
export const problemOfFrame = (frame: JsonObject): UpstreamProblem => {
  const complaint = complaintOf(frame)
  const inner = isJsonObject(frame["error"]) ? frame["error"] : frame
  const status = Number(inner["code"] ?? inner["status"] ?? Number.NaN)
  if (status >= 400 && status < 600) {
    return problemOfStatus({ status, headers: {}, body: Buffer.alloc(0) }, complaint)
  }
  const kind = `${textOf(inner["type"]) ?? ""} ${complaint.code ?? ""}`
  if (/rate_limit/i.test(kind)) return problemOfStatus({ status: 429, headers: {}, body: Buffer.alloc(0) }, complaint)
  if (contextCodes.test(kind) || /invalid_request/i.test(kind)) return problem(refusedRequest(400, complaint), "none")
  return problem(failed("The upstream provider reported an error in the stream."), "retry")
}
