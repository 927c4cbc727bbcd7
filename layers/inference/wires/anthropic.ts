import { Redacted } from "effect"
import { InvalidRequest, RateLimited, UpstreamFailed } from "#domain/errors.ts"
import type { JsonObject } from "#domain/json.ts"
import type { ModelOperation } from "#domain/operations.ts"
import { noUsage } from "#domain/usage.ts"
import { blockTexts, chatOfMessage, usageOfAnthropic } from "#layers/inference/wires/anthropic/decode.ts"
import { encodeMessages } from "#layers/inference/wires/anthropic/encode.ts"
import { MessagesReader, NativeMessagesReader } from "#layers/inference/wires/anthropic/stream.ts"
import { readBase, versioned } from "#layers/inference/wires/bases.ts"
import { answered, type ChatHead, chatHead } from "#layers/inference/wires/chat/answer.ts"
import { SseDecoder } from "#layers/inference/wires/chat/decoder.ts"
import { refusable } from "#layers/inference/wires/chat/fields.ts"
import { ChatStream } from "#layers/inference/wires/chat/stream.ts"
import { keyHeader } from "#layers/inference/wires/credential.ts"
import { NativeDecoder } from "#layers/inference/wires/native.ts"
import {
  complaintIn,
  complaintOf,
  errorInSuccess,
  headerText,
  isProblem,
  problemOfFrame,
  problemOfStatus,
  quoted,
  readAnswer
} from "#layers/inference/wires/problems.ts"
import { objectsOf } from "#layers/inference/wires/values.ts"
import type { UpstreamCall } from "#services/inference/ProviderRouter.ts"
import type {
  Exchange,
  UpstreamProblem,
  Wire,
  WireRequest,
  WireResponse,
  WireTarget
} from "#services/inference/Wire.ts"

const operations: ReadonlySet<ModelOperation> = new Set<ModelOperation>([
  "chat",
  "completion",
  "messages",
  "count_tokens"
])

/** The version of the API that requests name when their client names none. */
const apiVersion = "2023-06-01"

/** The client's headers that mean something to Anthropic. */
const forwarded = ["anthropic-version", "anthropic-beta"]

/** The problem in the upstream's own words, where a native client is to read them (decisions.md, section 4). */
const inOwnWords = (
  problem: UpstreamProblem,
  message: string | undefined,
  key: string | undefined
): UpstreamProblem => {
  const { error } = problem
  if (message === undefined || error instanceof InvalidRequest) return problem
  const own = quoted(key === undefined || key === "" ? message : message.replaceAll(key, "[redacted]"))
  if (error instanceof RateLimited) {
    return { ...problem, error: new RateLimited({ code: error.code, message: own, retryAfter: error.retryAfter }) }
  }
  // A refused credential is the gateway's own affair.
  if (!(error instanceof UpstreamFailed) || problem.remedy === "next") return problem
  return { ...problem, error: new UpstreamFailed({ code: error.code, message: own }) }
}

const readMessage = (body: Buffer): JsonObject | UpstreamProblem => {
  const answer = readAnswer(body)
  return !isProblem(answer) && answer["type"] === "error" ? errorInSuccess : answer
}

/** `/v1/messages` and its token count: what came goes on, and what comes goes back. */
const nativeExchange = (call: UpstreamCall, request: WireRequest, key: string | undefined): Exchange => ({
  request,
  classify: (response) => {
    const complaint = complaintIn(response.body)
    return inOwnWords(problemOfStatus(response, complaint), complaint.message, key)
  },
  decode: (response) => {
    const answer = readMessage(response.body)
    if (isProblem(answer)) return answer
    const contentType = headerText(response.headers, "content-type") ?? "application/json"
    const usage = call.operation === "count_tokens" ? noUsage : usageOfAnthropic(answer["usage"])
    return { contentType, body: response.body, usage, texts: () => blockTexts(objectsOf(answer["content"])) }
  },
  openStream: () =>
    new NativeDecoder(
      new NativeMessagesReader((frame) => inOwnWords(problemOfFrame(frame), complaintOf(frame).message, key))
    )
})

const chatExchange = (call: UpstreamCall, request: WireRequest, head: ChatHead): Exchange => ({
  request,
  decode: (response: WireResponse) => {
    const answer = readMessage(response.body)
    if (isProblem(answer)) return answer
    const chat = chatOfMessage(answer, head)
    return isProblem(chat) ? chat : answered(chat, usageOfAnthropic(answer["usage"]))
  },
  openStream: () => {
    const out = new ChatStream(head, call.wantsUsage)
    return new SseDecoder(new MessagesReader(out), out)
  }
})

/** Anthropic's Messages API: chat translated both ways, its native operations unconverted. */
export const anthropicWire: Wire = {
  name: "anthropic",
  bind: (target: WireTarget) => {
    const base = readBase(target.apiBase)
    if (typeof base === "string") return base
    const path = `${versioned(base, "v1")}/messages`
    const key = target.apiKey === undefined ? undefined : Redacted.value(target.apiKey)
    const headers: Readonly<Record<string, string>> = {
      "content-type": "application/json",
      "anthropic-version": apiVersion,
      ...keyHeader(target, "x-api-key")
    }
    const requestOf = (call: UpstreamCall, body: JsonObject): WireRequest => {
      const native = call.operation === "messages" || call.operation === "count_tokens"
      const own = native ? forwarded.map((name) => [name, call.headers?.[name]]) : []
      return {
        method: "POST",
        path: call.operation === "count_tokens" ? `${path}/count_tokens` : path,
        headers: { ...headers, ...Object.fromEntries(own.filter(([, value]) => value !== undefined)) },
        body: JSON.stringify(body)
      }
    }
    return {
      origin: base.origin,
      operations,
      streamType: "text/event-stream",
      classify: (response) => problemOfStatus(response),
      encode: (call) =>
        refusable(() => {
          if (call.operation === "messages" || call.operation === "count_tokens") {
            return nativeExchange(call, requestOf(call, { ...call.body, model: target.upstreamModel }), key)
          }
          const { body, jsonTool } = encodeMessages(call, target)
          return chatExchange(call, requestOf(call, body), chatHead(call, target.upstreamModel, jsonTool))
        })
    }
  }
}
