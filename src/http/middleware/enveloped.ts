import { type Cause, Clock, Effect, Layer } from "effect"
import { HttpServerRequest, HttpServerResponse } from "effect/http"
import { Enveloped, RequestId } from "#api/access.ts"
import { requestIdFrom } from "#domain/ids.ts"
import { CurrentRequestId } from "#services/identity/CurrentRequestId.ts"
import { messageOf } from "#http/node-message.ts"
import { tellError, tellRoute } from "#http/tracing.ts"
import { failureResponse, gatewayErrorOf, logUnexpected } from "#http/failures.ts"

/** The request's id: the client's, where it is well-formed, else a fresh one. */
export const requestIdOf = (request: HttpServerRequest.HttpServerRequest, now: number): string =>
  requestIdFrom(request.headers["x-request-id"], now)

/** A failed effect as the response its cause becomes. An interruption stays one. */
export const answerFailures = <E, R>(
  effect: Effect.Effect<HttpServerResponse.HttpServerResponse, E, R>,
  requestId: string,
  request: HttpServerRequest.HttpServerRequest
): Effect.Effect<HttpServerResponse.HttpServerResponse, never, R> =>
  Effect.catchCause(effect, (cause) => {
    const error = gatewayErrorOf(cause)
    if (error === undefined) return Effect.failCause(cause as Cause.Cause<never>)
    tellError(messageOf(request), error)
    return Effect.as(logUnexpected(error, cause, requestId), failureResponse(error, request.url))
  })

export const EnvelopedLive = Layer.effect(
  Enveloped,
  Effect.gen(function* () {
    const clock = yield* Clock.Clock
    return (effect, { endpoint }) =>
      Effect.flatMap(HttpServerRequest.HttpServerRequest, (request) => {
        tellRoute(messageOf(request), endpoint.path)
        const requestId = requestIdOf(request, clock.currentTimeMillisUnsafe())
        return Effect.map(
          answerFailures(
            effect.pipe(
              Effect.provideService(RequestId, requestId),
              Effect.provideService(CurrentRequestId, requestId)
            ),
            requestId,
            request
          ),
          HttpServerResponse.setHeader("x-request-id", requestId)
        )
      })
  })
)
