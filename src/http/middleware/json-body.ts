import { Effect, Layer } from "effect"
import { HttpServerRequest } from "effect/http"
import { NodeHttpServerRequest } from "@effect/platform-node"
import type { IncomingMessage } from "node:http"
import { JsonBody } from "#api/access.ts"
import { jsonOf, orFail, readBody, textOf } from "#http/body.ts"

const bodiless = new Set(["GET", "HEAD", "OPTIONS"])

/**
 * Reads the body itself, because the framework's own reading has no bound and answers an unknown content type with 415:
 * here a body is JSON whatever its header says, and every fault of it is the documented 400.
 */
export const JsonBodyLive = Layer.succeed(
  JsonBody,
  Effect.fnUntraced(function* (effect) {
    const request = yield* HttpServerRequest.HttpServerRequest
    if (bodiless.has(request.method)) return yield* effect
    const bytes = yield* readBody(NodeHttpServerRequest.toIncomingMessage(request) as IncomingMessage)
    const text = yield* orFail(textOf(bytes))
    if (text !== "") yield* orFail(jsonOf(text))
    const checked: HttpServerRequest.HttpServerRequest = Object.create(request, {
      text: { value: Effect.succeed(text) },
      headers: { value: { ...request.headers, "content-type": "application/json" } }
    })
    return yield* Effect.provideService(effect, HttpServerRequest.HttpServerRequest, checked)
  })
)
