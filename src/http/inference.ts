/** Handlers of the model calls: read, check against the contract, hand to the pipeline, write what comes. */
import type { IncomingMessage, ServerResponse } from "node:http"
import { NodeHttpServerRequest } from "@effect/platform-node"
import { Effect, Exit, Schema } from "effect"
import { type HttpServerRequest, HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { ModelCaller, RequestId } from "#api/access.ts"
import { Api } from "#api/Api.ts"
import { promptTokenBound } from "#domain/chat.ts"
import { envelopeOf, type GatewayError, internalFailure, missingField, ValidationFailed } from "#domain/errors.ts"
import { isJsonObject, type JsonObject } from "#domain/json.ts"
import type { ModelOperation } from "#domain/operations.ts"
import { ChatCompletionRequest, CompletionRequest, EmbeddingRequest } from "#domain/requests.ts"
import { jsonOf, receiveBody, textOf } from "#http/body.ts"
import { quotaHeaders } from "#http/quota-headers.ts"
import { firstIssue } from "#http/schema-issues.ts"
import { spanOf, tellError } from "#http/tracing.ts"
import type { ApiKeyPrincipal, MasterKeyPrincipal } from "#domain/principal.ts"
import { BudgetLedger } from "#services/budgets/BudgetLedger.ts"
import {
  type ByteControl,
  type CompletedCall,
  type ModelCall,
  ModelCalls,
  type StreamingCall
} from "#services/inference/ModelCalls.ts"

/** Checks a body without copying it: what is forwarded is what the client sent, unknown fields included. */
export const checker = (schema: Schema.Decoder<unknown>) => {
  const decode = Schema.decodeUnknownExit(schema)
  return (body: unknown): Exit.Exit<JsonObject, GatewayError> => {
    const exit = decode(body)
    if (Exit.isSuccess(exit) && isJsonObject(body)) return Exit.succeed(body)
    const [reason] = Exit.isFailure(exit) ? exit.cause.reasons : []
    return Exit.fail(reason?._tag === "Fail" ? firstIssue(reason.error.issue, "body") : internalFailure)
  }
}

const checks: { readonly [O in ModelOperation]?: (body: unknown) => Exit.Exit<JsonObject, GatewayError> } = {
  chat: checker(ChatCompletionRequest),
  completion: checker(CompletionRequest),
  embedding: checker(EmbeddingRequest)
}

const wantsUsage = (body: JsonObject): boolean => {
  const options = body["stream_options"]
  return isJsonObject(options) && options["include_usage"] === true
}

/** A failure on a stream that has begun: an event, because the status has gone out. */
const failureEvent = (error: GatewayError): string => `event: error\ndata: ${JSON.stringify(envelopeOf(error))}\n\n`

/** Bodies up to this size leave in one write with their headers, which saves a system call. */
const oneWriteBytes = 64 * 1024

/** Written straight to Node: this is the hot path. */
export const writeWhole = (response: ServerResponse, body: Buffer, headers: Record<string, string>): void => {
  headers["content-length"] = String(body.length)
  response.writeHead(200, headers)
  // Node joins a string with the headers, a buffer it does not; latin1 maps bytes to characters one to one.
  if (body.length <= oneWriteBytes) response.end(body.toString("latin1"), "latin1")
  else response.end(body)
}

/** Starts a stream; `describe` words its failure, and `ended` is told when all of it is written. */
const startStream = (
  response: ServerResponse,
  answer: StreamingCall,
  headers: Record<string, string>,
  describe: (error: GatewayError) => string,
  ended: () => void
): ByteControl => {
  headers["cache-control"] = "no-cache"
  response.writeHead(200, headers)
  let blocked = false
  const control = answer.start({
    chunk: (bytes) => {
      if (response.write(bytes) || blocked) return
      blocked = true
      // Deferred, because the first chunk may come before `start` has returned. By then the socket may have drained, and
      // nobody would resume what is paused after that.
      queueMicrotask(() => {
        if (blocked) control.pause()
      })
      response.once("drain", () => {
        blocked = false
        control.resume()
      })
    },
    end: (failure) => {
      if (failure !== undefined) tellError(response.req, failure)
      response.end(failure === undefined ? undefined : describe(failure))
      ended()
    }
  })
  return control
}

/** `describe` words the failure of a stream that has begun. */
export const writeStream = (
  response: ServerResponse,
  answer: StreamingCall,
  headers: Record<string, string>,
  describe: (error: GatewayError) => string = failureEvent
): Effect.Effect<void> =>
  Effect.callback((resume) => {
    const control = startStream(response, answer, headers, describe, () => resume(Effect.void))
    return Effect.sync(() => control.cancel())
  })

/** One model call, as either way in has prepared it. */
export interface ModelCallInput {
  readonly request: IncomingMessage
  readonly response: ServerResponse
  readonly operation: ModelOperation
  readonly caller: ApiKeyPrincipal | MasterKeyPrincipal
  readonly requestId: string
  /** From the path, where the route has it there. */
  readonly model: string | undefined
}

/** The call that a body asks for. */
const callOf = (
  { caller, model, operation, request, requestId }: ModelCallInput,
  bytes: Buffer
): Exit.Exit<ModelCall, GatewayError> => {
  const text = textOf(bytes)
  if (typeof text !== "string") return Exit.fail(text)
  const json = jsonOf(text)
  if (json instanceof ValidationFailed) return Exit.fail(json)
  const checked = checks[operation]!(json)
  if (Exit.isFailure(checked)) return Exit.failCause(checked.cause)
  const body = checked.value
  const asked = model ?? body["model"]
  if (typeof asked !== "string") return Exit.fail(missingField("model"))
  return Exit.succeed({
    caller,
    requestId,
    operation,
    model: asked,
    body,
    stream: body["stream"] === true && operation !== "embedding",
    wantsUsage: wantsUsage(body),
    promptBound: promptTokenBound(text, bytes.length),
    span: spanOf(request)
  })
}

/**
 * Reads, checks, calls and writes. Fails with what the call fails with, before anything is written. One callback, because
 * hardly a step of it waits.
 */
export const makeModelCall = Effect.gen(function* () {
  const calls = yield* ModelCalls
  const ledger = yield* BudgetLedger

  const respond = (
    { caller, requestId, response }: ModelCallInput,
    answer: CompletedCall | StreamingCall,
    written: () => void
  ): void => {
    const headers = caller._tag === "ApiKey" ? quotaHeaders(ledger.quota(caller.key.limits)) : {}
    headers["x-request-id"] = requestId
    headers["content-type"] = answer.contentType
    if (answer._tag === "Streaming") return void startStream(response, answer, headers, failureEvent, written)
    writeWhole(response, answer.body, headers)
    written()
  }

  return (input: ModelCallInput): Effect.Effect<void, GatewayError> =>
    Effect.callback((resume) => {
      let cancel: (() => void) | undefined
      const begin = (bytes: Buffer | ValidationFailed): void => {
        const call: Exit.Exit<ModelCall, GatewayError> = Buffer.isBuffer(bytes)
          ? callOf(input, bytes)
          : Exit.fail(bytes)
        if (Exit.isFailure(call)) return resume(Exit.failCause(call.cause))
        cancel = calls.begin(call.value, {
          answered: (answer) => respond(input, answer, () => resume(Effect.void)),
          failed: (cause) => resume(Effect.failCause(cause))
        })
      }
      const stopReading = receiveBody(input.request, (bytes) => {
        try {
          begin(bytes)
        } catch (defect) {
          resume(Effect.die(defect))
        }
      })
      return Effect.sync(() => {
        stopReading()
        cancel?.()
      })
    })
})

/** Stands for a response that is already on its way: the server leaves an ended one alone. */
const written = HttpServerResponse.empty()

export const InferenceHandlers = HttpApiBuilder.group(
  Api,
  "inference",
  Effect.fn(function* (handlers) {
    const modelCall = yield* makeModelCall

    const handler = (operation: ModelOperation) =>
      Effect.fnUntraced(function* (input: {
        readonly request: HttpServerRequest.HttpServerRequest
        readonly params?: { readonly model: string }
      }) {
        yield* modelCall({
          request: NodeHttpServerRequest.toIncomingMessage(input.request) as IncomingMessage,
          response: NodeHttpServerRequest.toServerResponse(input.request) as ServerResponse,
          operation,
          caller: yield* ModelCaller,
          requestId: yield* RequestId,
          model: input.params?.model
        })
        return written
      })

    const chat = handler("chat")
    const completion = handler("completion")
    const embedding = handler("embedding")
    return handlers
      .handleRaw("chat_completions", chat)
      .handleRaw("chat_completions_alias", chat)
      .handleRaw("engine_chat_completions", chat)
      .handleRaw("deployment_chat_completions", chat)
      .handleRaw("completions", completion)
      .handleRaw("completions_alias", completion)
      .handleRaw("embeddings", embedding)
      .handleRaw("embeddings_alias", embedding)
  })
)
