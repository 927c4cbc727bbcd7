/** The span of a request, in OpenTelemetry's conventions for HTTP servers. Costs a look at a property where nobody traces. */
import type { IncomingMessage, ServerResponse } from "node:http"
import type { GatewayError } from "#domain/errors.ts"
import type { Span, TracingShape } from "#services/telemetry/Tracing.ts"

const spanKey = Symbol("sluice/http/span")

interface TracedMessage extends IncomingMessage {
  [spanKey]?: Span
}

/** What the conventions know; another method is `_OTHER`, so that nobody makes up span names. */
const methods: ReadonlySet<string> = new Set([
  "GET",
  "HEAD",
  "POST",
  "PUT",
  "DELETE",
  "CONNECT",
  "OPTIONS",
  "TRACE",
  "PATCH",
  "QUERY"
])

/** Keys may stand in paths (`/key/{key}/regenerate`), also where the path is none of ours. */
const keyInPath = /sk-[^/]*/g

const header = (value: string | ReadonlyArray<string> | undefined): string | undefined =>
  typeof value === "string" ? value : value?.join(",")

const tellHost = (span: Span, host: string | undefined): void => {
  const found = /^(\[[^\]]*\]|[^:]*)(?::(\d{1,5}))?$/.exec(host ?? "")
  if (found === null || found[1] === "") return
  span.set("server.address", found[1])
  if (found[2] !== undefined) span.set("server.port", Number(found[2]))
}

/** Opens the span of a request, which ends when its response is closed. */
export const traceRequest = (tracing: TracingShape, request: IncomingMessage, response: ServerResponse): void => {
  const given = request.method ?? ""
  const method = methods.has(given) ? given : "_OTHER"
  const { traceparent, tracestate } = request.headers
  const span = tracing.start(method === "_OTHER" ? "HTTP" : method, "server", header(traceparent), header(tracestate))
  ;(request as TracedMessage)[spanKey] = span
  if (!span.recording) return
  const url = request.url ?? "/"
  const query = url.indexOf("?")
  span.set("http.request.method", method)
  if (method !== given) span.set("http.request.method_original", given)
  span.set("url.path", (query < 0 ? url : url.slice(0, query)).replace(keyInPath, "[key]"))
  span.set("url.scheme", "encrypted" in request.socket ? "https" : "http")
  tellHost(span, request.headers.host)
  span.set("network.protocol.version", request.httpVersion)
  span.set("user_agent.original", request.headers["user-agent"])
  response.once("close", () => {
    if (response.headersSent) {
      span.set("http.response.status_code", response.statusCode)
      if (response.statusCode >= 500) span.error(String(response.statusCode), true)
    }
    if (!response.writableFinished) span.set("sluice.connection_cut", true)
    span.end()
  })
}

/** The span of a request; undefined where requests are not traced. */
export const spanOf = (request: IncomingMessage): Span | undefined => (request as TracedMessage)[spanKey]

/** Which route a request takes, as the contract words its path. */
export const tellRoute = (request: IncomingMessage, route: string): void => {
  const span = spanOf(request)
  if (span === undefined || !span.recording) return
  span.rename(`${request.method} ${route}`)
  span.set("http.route", route)
}

/** What a request is answered with. A refusal (4XX) is no failure of the server, a stream that breaks is one. */
export const tellError = (request: IncomingMessage, error: GatewayError): void =>
  spanOf(request)?.error(error.code, error.status >= 500)
