/** The API listener: the contract's routes and nothing else (decisions.md, section 1). */
import { createServer, type Server } from "node:http"
import type { Socket } from "node:net"
import { NodeHttpServer } from "@effect/platform-node"
import { Clock, type Duration, Effect, Layer } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { Api } from "#api/Api.ts"
import { envelopeOf } from "#domain/errors.ts"
import { CredentialHandlers } from "#http/credentials.ts"
import { failureResponse, malformedJson, routeNotFound } from "#http/failures.ts"
import { InferenceHandlers } from "#http/inference.ts"
import { KeyHandlers } from "#http/keys.ts"
import { ManagementAccessLive, ModelAccessLive } from "#http/middleware/access.ts"
import { EnvelopedLive, requestIdOf } from "#http/middleware/enveloped.ts"
import { JsonBodyLive } from "#http/middleware/json-body.ts"
import { ModelHandlers } from "#http/models.ts"
import { ModelListHandlers } from "#http/model-list.ts"
import { OpenApiHandlers, SchemaHandlers } from "#http/openapi.ts"
import { UsageHandlers } from "#http/usage.ts"

export interface ApiListenerOptions {
  readonly host: string
  readonly port: number
  /** Origins whose browsers may call; empty: none. */
  readonly corsOrigins: ReadonlyArray<string>
  /** How long running requests may take to finish after the listener has closed. */
  readonly drainTimeout: Duration.Duration
}

/** How long a client may take to send its headers. */
const headersTimeoutMillis = 15_000

/** A request that is no HTTP gets the envelope too, as far as its socket still takes one. */
const answerBrokenRequest = (error: NodeJS.ErrnoException, socket: Socket) => {
  if (error.code === "ECONNRESET" || !socket.writable) return socket.destroy()
  const body = JSON.stringify(
    envelopeOf(
      malformedJson(
        error.code === "ERR_HTTP_REQUEST_TIMEOUT"
          ? "The request was not received in time."
          : "The request is not valid HTTP or stopped before its end."
      )
    )
  )
  socket.end(
    `HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`
  )
}

const nodeServer = (): Server => {
  const server = createServer({
    headersTimeout: headersTimeoutMillis,
    // The body has bounds of its own (body.ts): Node's would cut a long upload that makes progress.
    requestTimeout: 0,
    keepAliveTimeout: 75_000,
    connectionsCheckingInterval: 1_000,
    maxHeaderSize: 32 * 1024,
    noDelay: true
  })
  server.on("clientError", answerBrokenRequest)
  return server
}

/** Wrong methods and unknown paths alike: the envelope's `route_not_found`. */
const NotFoundRoute = HttpRouter.add(
  "*",
  "/*",
  Effect.gen(function* () {
    const clock = yield* Clock.Clock
    const request = yield* HttpServerRequest.HttpServerRequest
    return HttpServerResponse.setHeader(
      failureResponse(routeNotFound),
      "x-request-id",
      requestIdOf(request, clock.currentTimeMillisUnsafe())
    )
  })
)

const Routes = HttpApiBuilder.layer(Api).pipe(
  Layer.provide([
    InferenceHandlers,
    ModelListHandlers,
    UsageHandlers,
    OpenApiHandlers,
    SchemaHandlers,
    KeyHandlers,
    ModelHandlers,
    CredentialHandlers
  ]),
  Layer.provide([EnvelopedLive, ManagementAccessLive, ModelAccessLive, JsonBodyLive]),
  Layer.merge(NotFoundRoute)
)

const cors = (origins: ReadonlyArray<string>) =>
  HttpRouter.cors({
    allowedOrigins: origins,
    allowedMethods: ["GET", "POST", "PATCH", "DELETE"],
    exposedHeaders: ["X-Request-Id", "Retry-After"],
    maxAge: 600
  })

/** Serves the API. Closing its scope drains: no new connections, running requests get `drainTimeout`. */
export const layer = (options: ApiListenerOptions) =>
  HttpRouter.serve(options.corsOrigins.length === 0 ? Routes : Layer.merge(Routes, cors(options.corsOrigins)), {
    disableLogger: true,
    disableListenLog: true,
    routerConfig: { maxParamLength: 512, caseSensitive: true, ignoreTrailingSlash: true }
  }).pipe(
    Layer.provide(
      NodeHttpServer.layer(nodeServer, {
        host: options.host,
        port: options.port,
        backlog: 4096,
        gracefulShutdownTimeout: options.drainTimeout
      })
    )
  )
