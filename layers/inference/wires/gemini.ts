import type { JsonObject } from "#domain/json.ts"
import type { ModelOperation } from "#domain/operations.ts"
import { usageOf } from "#domain/usage.ts"
import { readBase, versioned } from "#layers/inference/wires/bases.ts"
import { answered, type ChatHead, chatHead } from "#layers/inference/wires/chat/answer.ts"
import { SseDecoder } from "#layers/inference/wires/chat/decoder.ts"
import { refusable } from "#layers/inference/wires/chat/fields.ts"
import { ChatStream } from "#layers/inference/wires/chat/stream.ts"
import { keyHeader } from "#layers/inference/wires/credential.ts"
import { embeddingAnswer, type EmbeddingRequest, readEmbedding } from "#layers/inference/wires/embeddings.ts"
import { candidateText, chatOfGenerated, isBlocked, usageOfGemini } from "#layers/inference/wires/gemini/decode.ts"
import { encodeEmbeddings, encodeGenerate, nativeGenerate } from "#layers/inference/wires/gemini/encode.ts"
import { GenerateReader, NativeGenerateReader } from "#layers/inference/wires/gemini/stream.ts"
import { NativeDecoder } from "#layers/inference/wires/native.ts"
import {
  complaintIn,
  errorInSuccess,
  headerText,
  isProblem,
  malformedAnswer,
  problemOfStatus,
  readAnswer
} from "#layers/inference/wires/problems.ts"
import { countOf, objectOf, objectsOf, parseJson, stringOf } from "#layers/inference/wires/values.ts"
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
  "embedding",
  "generate_content"
])

const readGenerated = (body: Buffer): JsonObject | UpstreamProblem => {
  const answer = readAnswer(body)
  return isProblem(answer) || answer["error"] === undefined ? answer : errorInSuccess
}

/** Google answers a bad key with 400, and says in the body how long to wait (google.rpc.RetryInfo). */
const classify = (response: WireResponse): UpstreamProblem => {
  const parsed = parseJson(response.body)
  const first = Array.isArray(parsed) ? objectOf(objectsOf(parsed)[0]) : objectOf(parsed)
  const details = objectsOf(objectOf(first["error"])["details"])
  const complaint = complaintIn(response.body)
  if (details.some((detail) => detail["reason"] === "API_KEY_INVALID")) {
    return problemOfStatus({ ...response, status: 401 }, complaint)
  }
  const delay = details.map((detail) => /^([\d.]+)s$/.exec(stringOf(detail["retryDelay"]) ?? "")?.[1]).find(Boolean)
  const headers =
    delay === undefined
      ? response.headers
      : { ...response.headers, "retry-after-ms": String(Math.ceil(Number(delay) * 1000)) }
  const tooLong = /input token count.{0,80}exceeds/i.test(complaint.message ?? "")
  return problemOfStatus(
    { ...response, headers },
    tooLong ? { ...complaint, code: "context_length_exceeded" } : complaint
  )
}

const chatExchange = (call: UpstreamCall, request: WireRequest, head: ChatHead): Exchange => ({
  request,
  decode: (response) => {
    const answer = readGenerated(response.body)
    if (isProblem(answer)) return answer
    const chat = chatOfGenerated(answer, head)
    return isProblem(chat) ? chat : answered(chat, usageOfGemini(answer["usageMetadata"]))
  },
  openStream: () => {
    const out = new ChatStream(head, call.wantsUsage)
    return new SseDecoder(new GenerateReader(out, head.id.slice(-24)), out)
  }
})

/** Google's own shape, untouched: the chat completion beside it is HTTP's to add. */
const nativeExchange = (request: WireRequest): Exchange => ({
  request,
  decode: (response) => {
    const answer = readGenerated(response.body)
    if (isProblem(answer)) return answer
    const candidates = objectsOf(answer["candidates"])
    if (candidates.length === 0 && !isBlocked(answer)) return malformedAnswer("it has no candidates")
    const contentType = headerText(response.headers, "content-type") ?? "application/json"
    const usage = usageOfGemini(answer["usageMetadata"])
    return { contentType, body: response.body, usage, texts: () => candidates.map(candidateText) }
  },
  openStream: () => new NativeDecoder(new NativeGenerateReader())
})

const embeddingExchange = (asked: EmbeddingRequest, request: WireRequest, model: string): Exchange => ({
  request,
  decode: (response) => {
    const answer = readGenerated(response.body)
    if (isProblem(answer)) return answer
    const reported = objectOf(answer["usageMetadata"])["promptTokenCount"]
    const usage = reported === undefined ? undefined : usageOf({ input: countOf(reported) })
    return embeddingAnswer(
      asked,
      model,
      objectsOf(answer["embeddings"]).map((one) => one["values"]),
      usage
    )
  },
  openStream: () => new NativeDecoder(new NativeGenerateReader())
})

/** Google's Gemini API: chat and embeddings translated, generateContent unconverted. */
export const geminiWire: Wire = {
  name: "gemini",
  bind: (target: WireTarget) => {
    const base = readBase(target.apiBase)
    if (typeof base === "string") return base
    const model = target.upstreamModel.replace(/^models\//, "")
    const resource = `${versioned(base, "v1beta")}/models/${encodeURIComponent(model)}`
    const headers: Readonly<Record<string, string>> = {
      "content-type": "application/json",
      ...keyHeader(target, "x-goog-api-key")
    }
    const post = (method: string, body: JsonObject): WireRequest => ({
      method: "POST",
      path: `${resource}:${method}`,
      headers,
      body: JSON.stringify(body)
    })
    return {
      origin: base.origin,
      operations,
      streamType: "text/event-stream",
      classify,
      encode: (call) =>
        refusable(() => {
          if (call.operation === "embedding") {
            const asked = readEmbedding(call, target, ["task_type"])
            const body = encodeEmbeddings(asked, call.body, model)
            return embeddingExchange(asked, post("batchEmbedContents", body), target.upstreamModel)
          }
          const method = call.stream ? "streamGenerateContent?alt=sse" : "generateContent"
          if (call.operation === "generate_content") {
            return nativeExchange(post(method, nativeGenerate(call.body)))
          }
          return chatExchange(call, post(method, encodeGenerate(call, target)), chatHead(call, target.upstreamModel))
        })
    }
  }
}
