/** Embedding models on Bedrock, each with a shape of its own behind InvokeModel. */
import { InvalidRequest } from "#domain/errors.ts"
import type { Json, JsonObject } from "#domain/json.ts"
import { type Usage, usageOf } from "#domain/usage.ts"
import type { EmbeddingRequest } from "#layers/inference/wires/embeddings.ts"
import { headerText } from "#layers/inference/wires/problems.ts"
import { countOf, listOf, objectOf, present, stringOf } from "#layers/inference/wires/values.ts"
import type { WireHeaders } from "#services/inference/Wire.ts"

/** Whose embedding model it is; undefined: none that is known. */
export const embedder = (model: string): "titan" | "cohere" | undefined => {
  if (/titan-embed-text/i.test(model)) return "titan"
  return /cohere\.embed/i.test(model) ? "cohere" : undefined
}

/** Throws an InvalidRequest: Titan takes one text a call. */
export const encodeInvoke = (request: EmbeddingRequest, body: JsonObject, model: string): JsonObject => {
  if (embedder(model) === "cohere") {
    return present({
      texts: request.texts,
      input_type: stringOf(body["input_type"]) ?? "search_document",
      embedding_types: ["float"],
      output_dimension: request.dimensions,
      truncate: body["truncate"] ?? undefined
    })
  }
  const [text, second] = request.texts
  if (text === undefined || second !== undefined) {
    const message = "'input' must be one text: this model embeds one a call."
    throw new InvalidRequest({ code: "unsupported_parameter", message, param: "input" })
  }
  return present({ inputText: text, dimensions: request.dimensions })
}

/** The vectors in an answer, in the order of the texts. */
export const vectorsOf = (answer: JsonObject): ReadonlyArray<Json> => {
  if (answer["embedding"] !== undefined) return [answer["embedding"]]
  const { embeddings } = answer
  return Array.isArray(embeddings) ? listOf(embeddings) : listOf(objectOf(embeddings)["float"])
}

/** Titan counts in the answer, Bedrock in a header. */
export const invokeUsage = (answer: JsonObject, headers: WireHeaders): Usage | undefined => {
  const counted = answer["inputTextTokenCount"] ?? Number(headerText(headers, "x-amzn-bedrock-input-token-count") ?? 0)
  return countOf(counted) === 0 ? undefined : usageOf({ input: countOf(counted) })
}
