/**
 * Browsers of the configured origins (GATEWAY_CORS_ORIGINS). Stands before the hot path and the router, because model
 * answers are written to the socket past the framework and browsers must be let read those above all.
 */
import type { IncomingMessage, RequestListener, ServerResponse } from "node:http"
import { quotaHeaderNames } from "#http/quota-headers.ts"

/** What an answer may carry besides its body that a browser's program has a use for. */
const exposed = [
  "X-Request-Id",
  "request-id",
  "Retry-After",
  "Retry-With-Pagination",
  "x-should-retry",
  ...quotaHeaderNames
].join(", ")

const methods = "GET, POST, PATCH, DELETE"
const preflightSeconds = 600
const headerNames = /^[\w!#$%&'*+.^`|~-]+(?:\s*,\s*[\w!#$%&'*+.^`|~-]+)*$/

const answerPreflight = (request: IncomingMessage, response: ServerResponse): void => {
  const asked = request.headers["access-control-request-headers"]
  request.resume()
  response.writeHead(204, {
    "access-control-allow-methods": methods,
    "access-control-max-age": String(preflightSeconds),
    // Official clients send headers of their own, whose names change from release to release.
    ...(asked !== undefined && headerNames.test(asked) ? { "access-control-allow-headers": asked } : {})
  })
  response.end()
}

/** Lets browsers of `origins` read what `listener` answers; `*` stands for any. Others see no difference. */
export const withCors = (listener: RequestListener, origins: ReadonlyArray<string>): RequestListener => {
  if (origins.length === 0) return listener
  const allowed = new Set(origins)
  const any = allowed.has("*")
  return (request, response) => {
    const { origin } = request.headers
    if (!any) response.setHeader("vary", "Origin, Access-Control-Request-Headers")
    if (origin === undefined || !(any || allowed.has(origin))) return listener(request, response)
    response.setHeader("access-control-allow-origin", any ? "*" : origin)
    if (request.method === "OPTIONS" && request.headers["access-control-request-method"] !== undefined) {
      return answerPreflight(request, response)
    }
    response.setHeader("access-control-expose-headers", exposed)
    return listener(request, response)
  }
}
