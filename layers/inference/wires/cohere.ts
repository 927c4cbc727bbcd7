import type { JsonObject } from "#domain/json.ts"
import type { ModelOperation } from "#domain/operations.ts"
import { usageOf } from "#domain/usage.ts"
import { readBase, versioned } from "#layers/inference/wires/bases.ts"
import { answered, type ChatHead, chatHead } from "#layers/inference/wires/chat/answer.ts"
import { SseDecoder } from "#layers/inference/wires/chat/decoder.ts"
import { refusable } from "#layers/inference/wires/chat/fields.ts"
import { ChatStream } from "#layers/inference/wires/chat/stream.ts"
import { keyHeader } from "#layers/inference/wires/credential.ts"
import { chatOfCohere, CohereReader, usageOfCohere } from "#layers/inference/wires/cohere/decode.ts"
import {
  encodeCohereChat,
  encodeCohereEmbed,
  encodeRerank,
  type RerankQuestion
} from "#layers/inference/wires/cohere/encode.ts"
import { embeddingAnswer, type EmbeddingRequest, readEmbedding } from "#layers/inference/wires/embeddings.ts"
import {
  complaintIn,
  isProblem,
  malformedAnswer,
  problemOfStatus,
  readAnswer
} from "#layers/inference/wires/problems.ts"
import { countOf, listOf, objectOf, objectsOf } from "#layers/inference/wires/values.ts"
import type { UpstreamCall } from "#services/inference/ProviderRouter.ts"
import type {
  Exchange,
  UpstreamProblem,
  Wire,
  WireRequest,
  WireResponse,
  WireTarget
} from "#services/inference/Wire.ts"

const operations: ReadonlySet<ModelOperation> = new Set<ModelOperation>(["chat", "completion", "embedding", "rerank"])

/** Cohere answers a refused token with a status of its own. */
const classify = (response: WireResponse): UpstreamProblem => {
  const complaint = complaintIn(response.body)
  if (response.status === 498) return problemOfStatus({ ...response, status: 401 }, complaint)
  const tooLong = /too many tokens|total number of tokens/i.test(complaint.message ?? "")
  return problemOfStatus(response, tooLong ? { ...complaint, code: "context_length_exceeded" } : complaint)
}

const streamOf = (call: UpstreamCall, head: ChatHead) => () => {
  const out = new ChatStream(head, call.wantsUsage)
  return new SseDecoder(new CohereReader(out), out)
}

const chatExchange = (call: UpstreamCall, request: WireRequest, head: ChatHead): Exchange => ({
  request,
  decode: (response) => {
    const answer = readAnswer(response.body)
    if (isProblem(answer)) return answer
    const chat = chatOfCohere(answer, head)
    return isProblem(chat) ? chat : answered(chat, usageOfCohere(answer["usage"]))
  },
  openStream: streamOf(call, head)
})

const embedExchange = (
  call: UpstreamCall,
  asked: EmbeddingRequest,
  request: WireRequest,
  head: ChatHead
): Exchange => ({
  request,
  decode: (response) => {
    const answer = readAnswer(response.body)
    if (isProblem(answer)) return answer
    const vectors = listOf(objectOf(answer["embeddings"])["float"])
    return embeddingAnswer(asked, head.model, vectors, usageOfCohere(answer["meta"]))
  },
  openStream: streamOf(call, head)
})

const rerankExchange = (call: UpstreamCall, asked: RerankQuestion, request: WireRequest, head: ChatHead): Exchange => ({
  request,
  decode: (response) => {
    const answer = readAnswer(response.body)
    if (isProblem(answer)) return answer
    const listed = objectsOf(answer["results"])
    const results = listed.filter((one) => {
      const { index, relevance_score: score } = one
      return typeof index === "number" && asked.documents[index] !== undefined && typeof score === "number"
    })
    if (!Array.isArray(answer["results"]) || results.length !== listed.length) {
      return malformedAnswer("its results belong to other documents")
    }
    const whole = {
      ...answer,
      results: asked.returnDocuments
        ? results.map((one) => ({ ...one, document: { text: asked.documents[Number(one["index"])] ?? "" } }))
        : results
    }
    // Rerankers are paid by search, not by token: a call without tokens costs its `cost_per_request`.
    const tokens = objectOf(objectOf(answer["meta"])["billed_units"])["input_tokens"]
    const done = answered(whole, usageOf({ input: countOf(tokens) }))
    return isProblem(done) ? done : { ...done, texts: () => [] }
  },
  openStream: streamOf(call, head)
})

/** Cohere's API, version 2: chat and embed translated, rerank nearly as it is. */
export const cohereWire: Wire = {
  name: "cohere",
  bind: (target: WireTarget) => {
    const base = readBase(target.apiBase)
    if (typeof base === "string") return base
    const root = versioned(base, "v2")
    const headers: Readonly<Record<string, string>> = {
      "content-type": "application/json",
      ...keyHeader(target, "authorization")
    }
    const post = (path: string, body: JsonObject): WireRequest => ({
      method: "POST",
      path: `${root}/${path}`,
      headers,
      body: JSON.stringify(body)
    })
    const { upstreamModel: model } = target
    return {
      origin: base.origin,
      operations,
      streamType: "text/event-stream",
      classify,
      encode: (call) =>
        refusable(() => {
          const head = chatHead(call, model)
          if (call.operation === "rerank") {
            const asked = encodeRerank(call, target)
            return rerankExchange(call, asked, post("rerank", asked.body), head)
          }
          if (call.operation === "embedding") {
            const asked = readEmbedding(call, target, ["input_type", "truncate"])
            return embedExchange(call, asked, post("embed", encodeCohereEmbed(asked, call.body, model)), head)
          }
          return chatExchange(call, post("chat", encodeCohereChat(call, target)), head)
        })
    }
  }
}
