/** Model calls of the routes that are not the hot path: the same pipeline, with answers in other shapes. */
import type { ServerResponse } from "node:http"
import { NodeHttpServerRequest } from "@effect/platform-node"
import { Effect } from "effect"
import { type HttpServerRequest, HttpServerResponse } from "effect/http"
import { promptTokenBound } from "#domain/chat.ts"
import type { GatewayError } from "#domain/errors.ts"
import { isJsonObject, type JsonObject } from "#domain/json.ts"
import { jsonOf, orFail, readBody, textOf } from "#http/body.ts"
import { writeStream, writeWhole } from "#http/inference.ts"
import { malformedJson } from "#http/failures.ts"
import { messageOf } from "#http/node-message.ts"
import { quotaHeaders } from "#http/quota-headers.ts"
import { spanOf } from "#http/tracing.ts"
import { BudgetLedger } from "#services/budgets/BudgetLedger.ts"
import { type CompletedCall, type ModelCall, ModelCalls, type StreamingCall } from "#services/inference/ModelCalls.ts"

/** How an answer looks to its client. What is left out stays as it came. */
export interface AnswerShape {
  readonly whole?: (body: Buffer) => Buffer
  readonly stream?: (answer: StreamingCall) => StreamingCall
  /** The event that a failure becomes on a stream that has begun. */
  readonly failure?: (error: GatewayError) => string
  readonly headers?: Readonly<Record<string, string>>
}

/** A JSON body, read, and the bound of its tokens. */
export interface ReadBody {
  readonly body: JsonObject
  readonly promptBound: number
}

/** Reads a JSON object and checks it; the checked body is what the client sent. */
export const readJson = Effect.fnUntraced(function* (
  request: HttpServerRequest.HttpServerRequest,
  check: (body: unknown) => Effect.Effect<JsonObject, GatewayError>
): Effect.fn.Return<ReadBody, GatewayError> {
  const bytes = yield* readBody(messageOf(request))
  const text = yield* orFail(textOf(bytes))
  const parsed = yield* orFail(jsonOf(text))
  if (!isJsonObject(parsed)) return yield* malformedJson("The body is not a JSON object.")
  return { body: yield* check(parsed), promptBound: promptTokenBound(text, bytes.length) }
})

/** Stands for a response that is already on its way: the server leaves an ended one alone. */
const written = HttpServerResponse.empty()

/** Makes calls and writes their answers to the request's own response. */
export const makeGovernedCall = Effect.gen(function* () {
  const calls = yield* ModelCalls
  const ledger = yield* BudgetLedger

  return (request: HttpServerRequest.HttpServerRequest, call: ModelCall, shape: AnswerShape = {}) => {
    const response = NodeHttpServerRequest.toServerResponse(request) as ServerResponse
    const respond = (answer: CompletedCall | StreamingCall): Effect.Effect<void> => {
      const headers: Record<string, string> = {
        ...(call.caller._tag === "ApiKey" ? quotaHeaders(ledger.quota(call.caller.key.limits)) : {}),
        ...shape.headers,
        "x-request-id": call.requestId,
        "content-type": answer.contentType
      }
      if (answer._tag === "Completed") {
        const { body } = answer
        return Effect.sync(() => writeWhole(response, shape.whole === undefined ? body : shape.whole(body), headers))
      }
      return writeStream(response, shape.stream === undefined ? answer : shape.stream(answer), headers, shape.failure)
    }
    const span = spanOf(response.req)
    return Effect.as(calls.call(span === undefined ? call : { ...call, span }, respond), written)
  }
})
