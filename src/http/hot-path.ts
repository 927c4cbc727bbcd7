/**
 * Model calls of known keys on the static paths, answered without the router, the request and response models and the
 * middleware of the framework: they cost as much again as the call itself. Everything else, an unknown key and the
 * master key included, goes to the router; both ways share `inference.ts` and answer the same, which a test holds.
 */
import type { IncomingMessage, ServerResponse } from "node:http"
import { Clock, Effect, Exit, type Fiber } from "effect"
import type { ModelOperation } from "#domain/operations.ts"
import type { KeyPolicy } from "#domain/principal.ts"
import { gatewayErrorOf, logUnexpected } from "#http/failures.ts"
import { makeModelCall } from "#http/inference.ts"
import { answerFailure, requestIdOf } from "#http/node-answers.ts"
import { quotaHeaders } from "#http/quota-headers.ts"
import { tellError, tellRoute } from "#http/tracing.ts"
import { BudgetLedger } from "#services/budgets/BudgetLedger.ts"
import { KeyStore } from "#services/keys/KeyStore.ts"

const operations: ReadonlyMap<string, ModelOperation> = new Map([
  ["/v1/chat/completions", "chat"],
  ["/chat/completions", "chat"],
  ["/v1/completions", "completion"],
  ["/completions", "completion"],
  ["/v1/embeddings", "embedding"],
  ["/embeddings", "embedding"]
])

const bearer = "Bearer "

/** Takes a request if it is one of ours; false: the router's. */
export type HotPath = (request: IncomingMessage, response: ServerResponse) => boolean

/** `track` is told of every fiber, so that a shutdown can wait for it. */
export const makeHotPath = Effect.fn("makeHotPath")(function* (
  track: (fiber: Fiber.Fiber<unknown, unknown>) => void
): Effect.fn.Return<HotPath, never, KeyStore | BudgetLedger | Effect.Services<typeof makeModelCall>> {
  const clock = yield* Clock.Clock
  const keys = yield* KeyStore
  const ledger = yield* BudgetLedger
  const modelCall = yield* makeModelCall
  const fork = Effect.runForkWith(yield* Effect.context())

  const serve = (
    request: IncomingMessage,
    response: ServerResponse,
    operation: ModelOperation,
    key: KeyPolicy
  ): void => {
    tellRoute(request, request.url!)
    const requestId = requestIdOf(request, clock.currentTimeMillisUnsafe())
    const fiber = fork(
      modelCall({ request, response, operation, caller: { _tag: "ApiKey", key }, requestId, model: undefined })
    )
    track(fiber)
    const onClose = () => {
      if (!response.writableEnded) fiber.interruptUnsafe()
    }
    response.on("close", onClose)
    fiber.addObserver((exit) => {
      if (Exit.isSuccess(exit)) return
      const error = gatewayErrorOf(exit.cause)
      if (error === undefined) return
      tellError(request, error)
      fork(logUnexpected(error, exit.cause, requestId))
      answerFailure(response, error, { ...quotaHeaders(ledger.quota(key.limits)), "x-request-id": requestId })
    })
  }

  return (request, response) => {
    if (request.method !== "POST") return false
    const operation = operations.get(request.url ?? "")
    if (operation === undefined) return false
    const authorization = request.headers.authorization
    if (authorization === undefined || !authorization.startsWith(bearer)) return false
    const key = keys.known(authorization.slice(bearer.length))
    if (key === undefined) return false
    serve(request, response, operation, key)
    return true
  }
})
