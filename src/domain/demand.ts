/** The most that a call may consume, before anything of it is known: what its reservation covers (decisions.md, section 6.3). */
import { choicesOf, requestedTokens } from "#domain/chat.ts"
import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"
import type { ModelOperation } from "#domain/operations.ts"
import { type Price, type Usage, usageOf } from "#domain/usage.ts"

/** What of a model and of a call's files bounds its consumption. */
export interface DemandBounds {
  readonly maxOutputTokens: number
  readonly price: Price | undefined
  readonly files: ReadonlyArray<{ readonly size: number; readonly seconds: number | undefined }>
}

/** Nobody speaks more slowly, in characters a second. */
const slowestSpeech = 4
/** No speech is encoded in less, in bytes a second. */
const leanestAudio = 1_000

const positive = (value: Json | undefined): number | undefined =>
  typeof value === "number" && Number.isFinite(value) && value > 0 ? value : undefined

const generatedTokens = (operation: ModelOperation, body: JsonObject, most: number): number => {
  if (operation !== "generate_content") return requestedTokens(body) ?? most * choicesOf(body)
  const config = isJsonObject(body["generationConfig"]) ? body["generationConfig"] : {}
  return (positive(config["maxOutputTokens"]) ?? most) * Math.ceil(positive(config["candidateCount"]) ?? 1)
}

/** Media are priced by image or second; models that also bill their tokens say so by a price of output tokens. */
const mediaTokens = (bounds: DemandBounds, count: number): number =>
  bounds.price !== undefined && bounds.price.output > 0n ? bounds.maxOutputTokens * count : 0

/** `prompt` is the number of the prompt's tokens, or a bound of it. */
export const mostUsage = (operation: ModelOperation, body: JsonObject, prompt: number, bounds: DemandBounds): Usage => {
  switch (operation) {
    case "embedding":
    case "rerank":
    case "moderation":
      return usageOf({ input: prompt })
    case "count_tokens":
      return usageOf({})
    case "image":
    case "image_edit": {
      const images = choicesOf(body)
      return usageOf({ input: prompt, images, output: mediaTokens(bounds, images) })
    }
    case "speech": {
      const input = typeof body["input"] === "string" ? body["input"].length : 0
      const speed = Math.min(positive(body["speed"]) ?? 1, 4)
      return usageOf({ input: prompt, seconds: input / slowestSpeech / speed, output: mediaTokens(bounds, 1) })
    }
    case "transcription": {
      const seconds = bounds.files.reduce((sum, file) => sum + (file.seconds ?? file.size / leanestAudio), 0)
      return usageOf({ input: prompt, seconds, output: mediaTokens(bounds, 1) })
    }
    default:
      return usageOf({ input: prompt, output: generatedTokens(operation, body, bounds.maxOutputTokens) })
  }
}
