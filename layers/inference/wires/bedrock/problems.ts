import type { JsonObject } from "#domain/json.ts"
import {
  complaintIn,
  complaintOf,
  headerText,
  problemOfStatus,
  type UpstreamComplaint
} from "#layers/inference/wires/problems.ts"
import type { UpstreamProblem, WireResponse } from "#services/inference/Wire.ts"

/** Statuses of the exceptions that a stream may carry, or that come with a status that says something else. */
const statuses: Readonly<Record<string, number>> = {
  throttlingexception: 429,
  servicequotaexceededexception: 429,
  validationexception: 400,
  accessdeniedexception: 403,
  unrecognizedclientexception: 403,
  expiredtokenexception: 403,
  resourcenotfoundexception: 404,
  modelnotreadyexception: 429,
  modeltimeoutexception: 408,
  modelerrorexception: 502,
  modelstreamerrorexception: 502,
  internalserverexception: 500,
  serviceunavailableexception: 503
}

const explained = (complaint: UpstreamComplaint): UpstreamComplaint => {
  const message = complaint.message ?? ""
  if (/input is too long|too many input tokens|maximum tokens/i.test(message)) {
    return { ...complaint, code: "context_length_exceeded" }
  }
  return /model identifier is invalid|invocation of model id/i.test(message)
    ? { ...complaint, code: "model_not_found" }
    : complaint
}

/** Judges an answer outside 2xx: the exception's name tells more than the status. */
export const classifyBedrock = (response: WireResponse): UpstreamProblem => {
  const complaint = complaintIn(response.body)
  const name = (headerText(response.headers, "x-amzn-errortype") ?? "").split(":")[0]!.toLowerCase()
  return problemOfStatus({ ...response, status: statuses[name] ?? response.status }, explained(complaint))
}

/** Judges an exception inside a stream. */
export const problemOfException = (name: string, payload: JsonObject): UpstreamProblem =>
  problemOfStatus(
    { status: statuses[name.toLowerCase()] ?? 500, headers: {}, body: Buffer.alloc(0) },
    explained(complaintOf(payload))
  )
