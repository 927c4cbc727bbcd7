import { isJsonObject, type Json } from "#domain/json.ts"
import { usageOf, type Usage } from "#domain/usage.ts"

const count = (value: Json | undefined): number =>
  typeof value === "number" && Number.isFinite(value) && value > 0 ? Math.trunc(value) : 0

/**
 * The usage object of the OpenAI shape in disjoint buckets. Cached, audio and reasoning tokens are parts of the totals,
 * except where a provider reports reasoning beside the completion (its total then tells). Undefined: not a usage object.
 */
export const usageOfOpenAi = (value: Json | undefined): Usage | undefined => {
  if (!isJsonObject(value)) return undefined
  const prompt = count(value["prompt_tokens"] ?? value["input_tokens"])
  const completion = count(value["completion_tokens"] ?? value["output_tokens"])
  const total = count(value["total_tokens"])
  if (prompt === 0 && completion === 0 && total === 0 && value["prompt_tokens"] === undefined) return undefined
  const input = value["prompt_tokens_details"] ?? value["input_tokens_details"]
  const output = value["completion_tokens_details"] ?? value["output_tokens_details"]
  const inputDetails = isJsonObject(input) ? input : {}
  const outputDetails = isJsonObject(output) ? output : {}
  const cacheRead = Math.min(prompt, count(inputDetails["cached_tokens"] ?? value["prompt_cache_hit_tokens"]))
  const cacheWrite = Math.min(prompt - cacheRead, count(inputDetails["cache_write_tokens"]))
  const audioInput = Math.min(prompt - cacheRead - cacheWrite, count(inputDetails["audio_tokens"]))
  const reported = count(outputDetails["reasoning_tokens"])
  const beside = reported > 0 && total === prompt + completion + reported
  const reasoning = beside ? reported : Math.min(completion, reported)
  const spoken = beside ? completion : completion - reasoning
  const audioOutput = Math.min(spoken, count(outputDetails["audio_tokens"]))
  return usageOf({
    input: prompt - cacheRead - cacheWrite - audioInput,
    cacheRead,
    cacheWrite,
    audioInput,
    output: spoken - audioOutput,
    reasoning,
    audioOutput
  })
}
