import { Redacted } from "effect"
import { InvalidRequest } from "#domain/errors.ts"
import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"
import type { ModelOperation } from "#domain/operations.ts"
import type { Usage } from "#domain/usage.ts"
import { readBase } from "#layers/inference/wires/bases.ts"
import { keyHeader } from "#layers/inference/wires/credential.ts"
import { isMediaOperation, mediaAnswer, mediaBody, mediaPaths } from "#layers/inference/wires/openai-media.ts"
import { OpenAiStreamDecoder } from "#layers/inference/wires/openai-stream.ts"
import { choiceTexts } from "#layers/inference/wires/openai-texts.ts"
import { usageOfOpenAi } from "#layers/inference/wires/openai-usage.ts"
import { errorInSuccess, headerText, isProblem, problemOfStatus, readAnswer } from "#layers/inference/wires/problems.ts"
import { parseJson } from "#layers/inference/wires/values.ts"
import type { UpstreamCall } from "#services/inference/ProviderRouter.ts"
import type {
  BoundWire,
  DecodedAnswer,
  Exchange,
  StreamDecoder,
  UpstreamProblem,
  Wire,
  WireHeaders,
  WireRequest,
  WireResponse,
  WireTarget
} from "#services/inference/Wire.ts"

/** Where each operation lives below the base. An operation without a row is not supported. */
const paths: Partial<Record<ModelOperation, string>> = {
  chat: "/chat/completions",
  completion: "/chat/completions",
  embedding: "/embeddings",
  ...mediaPaths
}

const operations: ReadonlySet<ModelOperation> = new Set(Object.keys(paths) as Array<ModelOperation>)

/** Vectors are long and their usage stands at the end: beyond this size only the usage is parsed. */
const largeBody = 16 * 1024

/** The object after the last `"usage"`, when what follows it does nothing but close the answer. */
const trailingUsage = (body: Buffer): Usage | undefined => {
  const tail = body.subarray(Math.max(0, body.length - 1024)).toString("latin1")
  const at = tail.lastIndexOf('"usage"')
  if (at === -1) return undefined
  const match = /^"usage"\s*:\s*(\{[^"{}]*(?:"[^"]*"[^"{}]*)*(?:\{[^{}]*\}[^{}]*)*\})\s*\}\s*$/.exec(tail.slice(at))
  return match?.[1] === undefined ? undefined : usageOfOpenAi(parseJson(match[1]))
}

class OpenAiExchange implements Exchange {
  readonly request: WireRequest
  readonly #call: UpstreamCall

  constructor(call: UpstreamCall, request: WireRequest) {
    this.#call = call
    this.request = request
  }

  decode(response: WireResponse): DecodedAnswer | UpstreamProblem {
    const { body } = response
    const { operation } = this.#call
    if (isMediaOperation(operation)) return mediaAnswer(this.#call, operation, response)
    const contentType = headerText(response.headers, "content-type") ?? "application/json"
    if (operation === "embedding" && body.length > largeBody) {
      const usage = trailingUsage(body)
      if (usage !== undefined) return { contentType, body, usage, texts: () => [] }
    }
    const answer = readAnswer(body)
    if (isProblem(answer)) return answer
    if (isJsonObject(answer["error"]) && answer["choices"] === undefined && answer["data"] === undefined) {
      return errorInSuccess
    }
    return { contentType, body, usage: usageOfOpenAi(answer["usage"]), texts: () => choiceTexts(answer) }
  }

  openStream(_headers: WireHeaders): StreamDecoder {
    return new OpenAiStreamDecoder(this.#call.wantsUsage)
  }
}

/** A legacy prompt is one user message (model-api.md, "Chat, completions, embeddings"). */
const asChat = (body: JsonObject): JsonObject | InvalidRequest => {
  const { prompt, ...rest } = body
  const text = Array.isArray(prompt) && prompt.length === 1 ? (prompt as ReadonlyArray<Json>)[0] : prompt
  if (typeof text !== "string") {
    return new InvalidRequest({
      code: "unsupported_parameter",
      message: "'prompt' must be one text: lists of prompts and token lists are not supported.",
      param: "prompt"
    })
  }
  return { ...rest, messages: [{ role: "user", content: text }] }
}

/** `stream_options` with the usage asked for, whatever the client wanted: a call has to be charged. */
const askUsage = (options: Json | undefined): JsonObject => ({
  ...(isJsonObject(options) ? options : {}),
  include_usage: true
})

/** What differs between OpenAI-shaped upstreams: Azure puts the deployment into the path and the key elsewhere. */
export interface OpenAiShape {
  /** Path and query of an operation, from the origin's root; undefined: not supported. */
  readonly path: (operation: ModelOperation) => string | undefined
  readonly headers: Readonly<Record<string, string>>
}

/** The OpenAI-compatible wire on an origin, in a given shape. */
export const bindOpenAiShape = (target: WireTarget, origin: string, shape: OpenAiShape): BoundWire => {
  const { upstreamModel: model, streamUsage } = target
  return {
    origin,
    operations: new Set([...operations].filter((operation) => shape.path(operation) !== undefined)),
    streamType: "text/event-stream",
    classify: (response) => problemOfStatus(response),
    encode: (call) => {
      const path = shape.path(call.operation)
      if (isMediaOperation(call.operation)) {
        const { contentType, ...sent } = mediaBody(call, model)
        const headers = { ...shape.headers, "content-type": contentType }
        return new OpenAiExchange(call, { method: "POST", path: path ?? "/", headers, ...sent })
      }
      const fields = call.operation === "completion" ? asChat(call.body) : call.body
      if (fields instanceof InvalidRequest) return fields
      const body =
        call.stream && streamUsage === "ask"
          ? { ...fields, model, stream_options: askUsage(fields["stream_options"]) }
          : { ...fields, model }
      return new OpenAiExchange(call, {
        method: "POST",
        path: path ?? "/",
        headers: shape.headers,
        body: JSON.stringify(body)
      })
    }
  }
}

/** OpenAI's own wire and that of everyone who is compatible with it: unknown fields and answers pass unchanged. */
export const openaiWire: Wire = {
  name: "openai",
  bind: (target) => {
    const base = readBase(target.apiBase)
    if (typeof base === "string") return base
    const organization = Redacted.value(target.params)["organization"]
    return bindOpenAiShape(target, base.origin, {
      path: (operation) =>
        paths[operation] === undefined ? undefined : `${base.path}${paths[operation]}${base.search}`,
      headers: {
        "content-type": "application/json",
        ...keyHeader(target, "authorization"),
        ...(typeof organization === "string" ? { "openai-organization": organization } : {})
      }
    })
  }
}
