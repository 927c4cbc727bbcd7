/** Handlers of the provider-native shapes. */
import { Clock, Effect } from "effect"
import type { HttpServerRequest } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { ModelCaller, RequestId } from "#api/access.ts"
import { Api } from "#api/Api.ts"
import { envelopeOf, type GatewayError, InvalidRequest, missingField } from "#domain/errors.ts"
import { inBothShapes } from "#domain/generate-content/answer.ts"
import { chatOfGenerateContent } from "#domain/generate-content/request.ts"
import { GenerateContentEvents } from "#domain/generate-content/stream.ts"
import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"
import { CountTokensRequest, GenerateContentRequest, NativeMessagesRequest } from "#domain/native-requests.ts"
import { messagesFailure } from "#http/failures.ts"
import { type AnswerShape, makeGovernedCall, readJson } from "#http/governed.ts"
import { checker } from "#http/inference.ts"
import type { ByteConsumer, StreamingCall } from "#services/inference/ModelCalls.ts"
import { ProviderRouter } from "#services/inference/ProviderRouter.ts"

const checkMessages = checker(NativeMessagesRequest)
const checkCountTokens = checker(CountTokensRequest)
const checkGenerateContent = checker(GenerateContentRequest)

const longestHeader = 4_096

/** What Anthropic is told by headers. `provider-version` is required; `anthropic-version` is its alias. */
const forwardedHeaders = (
  headers: Readonly<Record<string, string | undefined>>
): Effect.Effect<Readonly<Record<string, string>>, GatewayError> => {
  const version = headers["provider-version"] ?? headers["anthropic-version"]
  if (version === undefined || version.trim() === "") return Effect.fail(missingField("provider-version"))
  const beta = headers["anthropic-beta"]
  return Effect.succeed({
    "anthropic-version": version.slice(0, longestHeader),
    ...(beta === undefined ? {} : { "anthropic-beta": beta.slice(0, longestHeader) })
  })
}

const messagesShape = (requestId: string): AnswerShape => ({
  failure: (error) => `event: error\ndata: ${JSON.stringify(messagesFailure(error))}\n\n`,
  headers: { "request-id": requestId }
})

/** Google's clients read the status inside the error. */
const googleFailure = (error: GatewayError): string =>
  `data: ${JSON.stringify({ error: { ...envelopeOf(error).error, status: error.code } })}\n\n`

const parsed = (data: string): JsonObject | undefined => {
  try {
    const value = JSON.parse(data) as Json
    return isJsonObject(value) ? value : undefined
  } catch {
    return undefined
  }
}

/** The JSON events of a piece of a stream, which holds whole events. */
const chunksOf = (bytes: Buffer): ReadonlyArray<JsonObject> =>
  bytes
    .toString("utf8")
    .split(/\r\n\r\n|\n\n|\r\r/)
    .flatMap((event): ReadonlyArray<JsonObject> => {
      const data = event
        .split(/\r\n|\r|\n/)
        .filter((line) => line.startsWith("data:"))
        .map((line) => line.slice(5).trimStart())
        .join("\n")
      const chunk = parsed(data)
      return chunk === undefined ? [] : [chunk]
    })

const eventsText = (events: ReadonlyArray<JsonObject>): string =>
  events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join("")

/** A stream of chat-completion chunks as Google's events. */
const asGenerateContent = (answer: StreamingCall): StreamingCall => ({
  ...answer,
  start: (consumer: ByteConsumer) => {
    const events = new GenerateContentEvents()
    const write = (made: ReadonlyArray<JsonObject>) => {
      if (made.length > 0) consumer.chunk(Buffer.from(eventsText(made)))
    }
    return answer.start({
      chunk: (bytes) => write(chunksOf(bytes).flatMap((chunk) => events.take(chunk))),
      end: (failure) => {
        if (failure === undefined) write(events.end())
        consumer.end(failure)
      }
    })
  }
})

export const NativeHandlers = HttpApiBuilder.group(
  Api,
  "native",
  Effect.fn(function* (handlers) {
    const governed = yield* makeGovernedCall
    const router = yield* ProviderRouter
    const clock = yield* Clock.Clock

    const messages = (operation: "messages" | "count_tokens") => {
      const check = operation === "messages" ? checkMessages : checkCountTokens
      return Effect.fnUntraced(function* ({ request }: { readonly request: HttpServerRequest.HttpServerRequest }) {
        const headers = yield* forwardedHeaders(request.headers)
        const { body, promptBound } = yield* readJson(request, check)
        const requestId = yield* RequestId
        const call = {
          caller: yield* ModelCaller,
          requestId,
          operation,
          model: body["model"] as string,
          body,
          headers,
          promptBound,
          stream: operation === "messages" && body["stream"] === true,
          wantsUsage: true
        }
        return yield* governed(request, call, messagesShape(requestId))
      })
    }

    const generateContent = (stream: boolean) =>
      Effect.fnUntraced(function* (input: {
        readonly request: HttpServerRequest.HttpServerRequest
        readonly params: { readonly model: string }
      }) {
        const { model } = input.params
        const given = yield* readJson(input.request, checkGenerateContent)
        const requestId = yield* RequestId
        const native = router.find(model)?.operations.has("generate_content") !== false
        const body = native ? given.body : chatOfGenerateContent(given.body, model, stream)
        if (body instanceof InvalidRequest) return yield* body
        const call = {
          caller: yield* ModelCaller,
          requestId,
          operation: native ? ("generate_content" as const) : ("chat" as const),
          model,
          body,
          promptBound: given.promptBound,
          stream,
          wantsUsage: true
        }
        const created = Math.floor(clock.currentTimeMillisUnsafe() / 1000)
        return yield* governed(input.request, call, {
          whole: (bytes) =>
            Buffer.from(JSON.stringify(inBothShapes(parsed(bytes.toString("utf8")) ?? {}, model, requestId, created))),
          ...(native ? {} : { stream: asGenerateContent }),
          failure: googleFailure
        })
      })

    return handlers
      .handleRaw("messages", messages("messages"))
      .handleRaw("count_tokens", messages("count_tokens"))
      .handleRaw("generate_content", generateContent(false))
      .handleRaw("stream_generate_content", generateContent(true))
  })
)
