/** Embedding requests and answers of upstreams that are not OpenAI-shaped. */
import { InvalidRequest } from "#domain/errors.ts"
import type { Json, JsonObject } from "#domain/json.ts"
import { promptTokens, type Usage } from "#domain/usage.ts"
import { checkFields, type FieldPolicy } from "#layers/inference/wires/chat/fields.ts"
import { malformedAnswer } from "#layers/inference/wires/problems.ts"
import { listOf } from "#layers/inference/wires/values.ts"
import type { UpstreamCall } from "#services/inference/ProviderRouter.ts"
import type { DecodedAnswer, UpstreamProblem } from "#services/inference/Wire.ts"

export interface EmbeddingRequest {
  readonly texts: ReadonlyArray<string>
  readonly dimensions: number | undefined
  readonly base64: boolean
}

const mostInputs = 4_096

const common = new Set(["input", "dimensions", "encoding_format"])

/** Reads an `embedding` call. Throws an InvalidRequest: lists of tokens can only be read by who made them. */
export const readEmbedding = (
  call: UpstreamCall,
  policy: FieldPolicy,
  carried: ReadonlyArray<string> = []
): EmbeddingRequest => {
  const { body } = call
  checkFields(body, new Set([...common, ...carried]), policy)
  const input = body["input"]
  const list = typeof input === "string" ? [input] : listOf(input)
  const texts = list.filter((one): one is string => typeof one === "string")
  if (texts.length === 0 || texts.length !== list.length || texts.length > mostInputs) {
    throw new InvalidRequest({
      code: "unsupported_parameter",
      message: `'input' must be a text or a list of at most ${mostInputs} texts: lists of tokens are not supported.`,
      param: "input"
    })
  }
  const dimensions = body["dimensions"]
  return {
    texts,
    dimensions: typeof dimensions === "number" ? dimensions : undefined,
    base64: body["encoding_format"] === "base64"
  }
}

const encoded = (vector: ReadonlyArray<number>): string => {
  const bytes = Buffer.allocUnsafe(vector.length * 4)
  for (let at = 0; at < vector.length; at += 1) bytes.writeFloatLE(vector[at]!, at * 4)
  return bytes.toString("base64")
}

const vectorOf = (value: Json | undefined): ReadonlyArray<number> | undefined => {
  const list = listOf(value)
  const numbers = list.filter((one): one is number => typeof one === "number")
  return numbers.length === list.length && numbers.length > 0 ? numbers : undefined
}

/** The answer in OpenAI's shape, one vector for each text, in their order. */
export const embeddingAnswer = (
  request: EmbeddingRequest,
  model: string,
  vectors: ReadonlyArray<Json | undefined>,
  usage: Usage | undefined
): DecodedAnswer | UpstreamProblem => {
  const read = vectors.map(vectorOf)
  const known = read.filter((vector) => vector !== undefined)
  if (known.length !== request.texts.length || known.length !== read.length) {
    return malformedAnswer("it holds another number of vectors than was asked for")
  }
  const prompt = usage === undefined ? 0 : promptTokens(usage)
  const answer: JsonObject = {
    object: "list",
    data: known.map((vector, index) => ({
      object: "embedding",
      index,
      embedding: request.base64 ? encoded(vector) : vector
    })),
    model,
    usage: { prompt_tokens: prompt, total_tokens: prompt }
  }
  return { contentType: "application/json", body: Buffer.from(JSON.stringify(answer)), usage, texts: () => [] }
}
