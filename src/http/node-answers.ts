/** Answers that are written to Node itself, where no framework stands between. */
import type { IncomingMessage, ServerResponse } from "node:http"
import { envelopeOf, type GatewayError } from "#domain/errors.ts"
import { requestIdFrom } from "#domain/ids.ts"
import { failureHeaders } from "#http/failures.ts"

/** The request's id: the client's, where it is well-formed, else a fresh one. */
export const requestIdOf = (request: IncomingMessage, now: number): string => {
  const given = request.headers["x-request-id"]
  return requestIdFrom(typeof given === "string" ? given : undefined, now)
}

/** Answers with a failure in the envelope. A response that has begun is cut: its status has gone out. */
export const answerFailure = (
  response: ServerResponse,
  error: GatewayError,
  headers: Readonly<Record<string, string>>
): void => {
  if (response.headersSent) return void response.destroy()
  const body = JSON.stringify(envelopeOf(error))
  response.writeHead(error.status, {
    ...headers,
    ...failureHeaders(error),
    "content-type": "application/json",
    "content-length": String(Buffer.byteLength(body))
  })
  response.end(body)
}
