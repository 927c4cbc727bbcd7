/** The API listener: the contract's routes and nothing else (decisions.md, section 1). */
import type { RequestListener } from "node:http"
import { NodeHttpServer } from "@effect/platform-node"
import { type Cause, Clock, Effect, FiberSet, Layer, Scope } from "effect"
import { HttpRouter, HttpServerError, HttpServerRequest, HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { Api } from "#api/Api.ts"
import { AdministrationHandlers } from "#http/administration.ts"
import { AgentHandlers } from "#http/agent.ts"
import { withCors } from "#http/cors.ts"
import { CredentialHandlers } from "#http/credentials.ts"
import { DeveloperHandlers } from "#http/developer.ts"
import { EvalHandlers } from "#http/evals.ts"
import { failureResponse, routeNotFound } from "#http/failures.ts"
import { makeHotPath } from "#http/hot-path.ts"
import { GuardrailHelperHandlers } from "#http/guardrailHelpers.ts"
import { InferenceHandlers } from "#http/inference.ts"
import { KeyHandlers } from "#http/keys.ts"
import { listen, type ListenerOptions } from "#http/listener.ts"
import { ManagementAccessLive, ModelAccessLive } from "#http/middleware/access.ts"
import { DeveloperAccessLive } from "#http/middleware/developer-access.ts"
import { EnvelopedLive, requestIdOf } from "#http/middleware/enveloped.ts"
import { JsonBodyLive } from "#http/middleware/json-body.ts"
import { MediaHandlers } from "#http/media.ts"
import { listenMutualTls, type MutualTlsOptions } from "#http/mutual-tls.ts"
import { ModelHandlers } from "#http/models.ts"
import { ModelListHandlers } from "#http/model-list.ts"
import { withModelInOneSegment } from "#http/native-paths.ts"
import { NativeHandlers } from "#http/native.ts"
import { PipelineHandlers } from "#http/pipelines.ts"
import { messageOf } from "#http/node-message.ts"
import { OpenApiHandlers, SchemaHandlers } from "#http/openapi.ts"
import { PeopleHandlers } from "#http/people.ts"
import { tellError, traceRequest } from "#http/tracing.ts"
import { UdfHandlers } from "#http/udf.ts"
import { UsageHandlers } from "#http/usage.ts"
import { Tracing } from "#services/telemetry/Tracing.ts"
import { Serving } from "#services/operations/Serving.ts"

export interface ApiListenerOptions extends ListenerOptions {
  /** Origins whose browsers may call; empty: none. */
  readonly corsOrigins: ReadonlyArray<string>
  /** The mutual-TLS listener beside it; undefined: none. */
  readonly udf: MutualTlsOptions | undefined
}

/** Wrong methods and unknown paths alike: the envelope's `route_not_found`. */
const notFoundResponse = Effect.gen(function* () {
  const clock = yield* Clock.Clock
  const request = yield* HttpServerRequest.HttpServerRequest
  tellError(messageOf(request), routeNotFound)
  return HttpServerResponse.setHeader(
    failureResponse(routeNotFound),
    "x-request-id",
    requestIdOf(request, clock.currentTimeMillisUnsafe())
  )
})

const NotFoundRoute = HttpRouter.add("*", "/*", notFoundResponse)

const isRouteNotFound = (cause: Cause.Cause<unknown>): boolean =>
  cause.reasons.some(
    (reason) =>
      reason._tag === "Fail" &&
      HttpServerError.isHttpServerError(reason.error) &&
      reason.error.reason._tag === "RouteNotFound"
  )

/** A path that the router cannot even read (bad escapes, an overlong parameter) is an unknown one. */
const answerUnroutable = <E, R>(routed: Effect.Effect<HttpServerResponse.HttpServerResponse, E, R>) =>
  Effect.catchCause(routed, (cause) => (isRouteNotFound(cause) ? notFoundResponse : Effect.failCause(cause)))

const Routes = HttpApiBuilder.layer(Api).pipe(
  Layer.provide([
    InferenceHandlers,
    MediaHandlers,
    NativeHandlers,
    AgentHandlers,
    UdfHandlers,
    GuardrailHelperHandlers,
    ModelListHandlers,
    UsageHandlers,
    OpenApiHandlers,
    SchemaHandlers,
    KeyHandlers,
    ModelHandlers,
    CredentialHandlers,
    PeopleHandlers,
    AdministrationHandlers,
    DeveloperHandlers,
    EvalHandlers,
    PipelineHandlers
  ]),
  Layer.provide([EnvelopedLive, ManagementAccessLive, ModelAccessLive, DeveloperAccessLive, JsonBodyLive]),
  Layer.merge(NotFoundRoute)
)

const routerConfig = { maxParamLength: 512, caseSensitive: true, ignoreTrailingSlash: true }

/** Serves the API. Closing its scope drains: no new connections, running requests get `drainTimeout`. */
export const layer = (options: ApiListenerOptions) =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      // Opened before the listener, so that it closes after the drain.
      const scope = yield* Effect.scope
      const routed = yield* HttpRouter.toHttpEffect(Routes).pipe(
        Effect.provideService(HttpRouter.RouterConfig, routerConfig),
        // A router is a layer, and a layer is built once: without a memory of its own the API would share that of the ops port.
        Effect.provideService(Layer.CurrentMemoMap, Layer.makeMemoMapUnsafe())
      )
      const running = yield* FiberSet.make()
      const router = yield* NodeHttpServer.makeHandler(answerUnroutable(routed), { scope: yield* Scope.fork(scope) })
      const hotPath = yield* makeHotPath((fiber) => FiberSet.addUnsafe(running, fiber))
      const tracing = yield* Tracing
      const serve: RequestListener = (request, response) => {
        if (tracing !== undefined) traceRequest(tracing, request, response)
        if (hotPath(request, response)) return
        request.url = withModelInOneSegment(request.url ?? "/")
        router(request, response)
      }
      if (options.udf !== undefined) yield* listenMutualTls(serve, options.udf, options.drainTimeout)
      yield* listen(withCors(serve, options.corsOrigins), options)
      const serving = yield* Serving
      serving.enter("open")
      // Runs before the listener's own: whoever asks hears of the drain no later than connections are refused.
      yield* Effect.addFinalizer(() => Effect.sync(() => serving.enter("draining")))
    })
  ).pipe(Layer.provide(NodeHttpServer.layerHttpServices))
