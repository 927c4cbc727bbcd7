import type { JsonObject } from "#domain/json.ts"

/** What the bundled table knows about a public model, in the names of `model_info`. */
export type KnownModel = JsonObject

const million = 1_000_000

interface Facts {
  readonly cacheRead?: number
  readonly cacheWrite?: number
  /** Largest completion and largest prompt, in tokens. */
  readonly maxOutput?: number
  readonly maxInput?: number
}

/** Dollars per million tokens become exact dollars per token, as text. */
const perToken = (dollarsPerMillion: number): string => (dollarsPerMillion / million).toFixed(12).replace(/\.?0+$/, "")

const model = (input: number, output: number, facts: Facts = {}): KnownModel => ({
  input_cost_per_token: perToken(input),
  output_cost_per_token: perToken(output),
  ...(facts.cacheRead === undefined ? {} : { cache_read_cost_per_token: perToken(facts.cacheRead) }),
  ...(facts.cacheWrite === undefined ? {} : { cache_write_cost_per_token: perToken(facts.cacheWrite) }),
  ...(facts.maxOutput === undefined ? {} : { max_output_tokens: facts.maxOutput }),
  ...(facts.maxInput === undefined ? {} : { max_input_tokens: facts.maxInput })
})

/**
 * List prices of well-known public models in dollars per million tokens (input, output). Models whose price depends on
 * the length of the prompt or the hour are left out: an operator names those in `model_info`.
 */
export const knownModels: Readonly<Record<string, KnownModel>> = {
  // openai.com/api/pricing
  "openai/gpt-3.5-turbo": model(0.5, 1.5, { maxOutput: 4_096, maxInput: 16_385 }),
  "openai/gpt-4": model(30, 60, { maxOutput: 8_192, maxInput: 8_192 }),
  "openai/gpt-4-turbo": model(10, 30, { maxOutput: 4_096, maxInput: 128_000 }),
  "openai/gpt-4o": model(2.5, 10, { cacheRead: 1.25, maxOutput: 16_384, maxInput: 128_000 }),
  "openai/gpt-4o-mini": model(0.15, 0.6, { cacheRead: 0.075, maxOutput: 16_384, maxInput: 128_000 }),
  "openai/gpt-4.1": model(2, 8, { cacheRead: 0.5, maxOutput: 32_768, maxInput: 1_047_576 }),
  "openai/gpt-4.1-mini": model(0.4, 1.6, { cacheRead: 0.1, maxOutput: 32_768, maxInput: 1_047_576 }),
  "openai/gpt-4.1-nano": model(0.1, 0.4, { cacheRead: 0.025, maxOutput: 32_768, maxInput: 1_047_576 }),
  "openai/gpt-5": model(1.25, 10, { cacheRead: 0.125, maxOutput: 128_000, maxInput: 272_000 }),
  "openai/gpt-5-mini": model(0.25, 2, { cacheRead: 0.025, maxOutput: 128_000, maxInput: 272_000 }),
  "openai/gpt-5-nano": model(0.05, 0.4, { cacheRead: 0.005, maxOutput: 128_000, maxInput: 272_000 }),
  "openai/o1": model(15, 60, { cacheRead: 7.5, maxOutput: 100_000, maxInput: 200_000 }),
  "openai/o3": model(2, 8, { cacheRead: 0.5, maxOutput: 100_000, maxInput: 200_000 }),
  "openai/o3-mini": model(1.1, 4.4, { cacheRead: 0.55, maxOutput: 100_000, maxInput: 200_000 }),
  "openai/o4-mini": model(1.1, 4.4, { cacheRead: 0.275, maxOutput: 100_000, maxInput: 200_000 }),
  "openai/text-embedding-3-small": model(0.02, 0, { maxInput: 8_192 }),
  "openai/text-embedding-3-large": model(0.13, 0, { maxInput: 8_192 }),
  "openai/text-embedding-ada-002": model(0.1, 0, { maxInput: 8_192 }),
  // claude.com/pricing
  "anthropic/claude-3-haiku": model(0.25, 1.25, {
    cacheRead: 0.03,
    cacheWrite: 0.3,
    maxOutput: 4_096,
    maxInput: 200_000
  }),
  "anthropic/claude-3-5-haiku": model(0.8, 4, { cacheRead: 0.08, cacheWrite: 1, maxOutput: 8_192, maxInput: 200_000 }),
  "anthropic/claude-3-7-sonnet": model(3, 15, {
    cacheRead: 0.3,
    cacheWrite: 3.75,
    maxOutput: 64_000,
    maxInput: 200_000
  }),
  "anthropic/claude-opus-4": model(15, 75, { cacheRead: 1.5, cacheWrite: 18.75, maxOutput: 32_000, maxInput: 200_000 }),
  "anthropic/claude-opus-4-1": model(15, 75, {
    cacheRead: 1.5,
    cacheWrite: 18.75,
    maxOutput: 32_000,
    maxInput: 200_000
  }),
  "anthropic/claude-opus-4-5": model(5, 25, { cacheRead: 0.5, cacheWrite: 6.25, maxOutput: 64_000, maxInput: 200_000 }),
  "anthropic/claude-haiku-4-5": model(1, 5, { cacheRead: 0.1, cacheWrite: 1.25, maxOutput: 64_000, maxInput: 200_000 }),
  // ai.google.dev/gemini-api/docs/pricing
  "gemini/gemini-2.0-flash": model(0.1, 0.4, { cacheRead: 0.025, maxOutput: 8_192, maxInput: 1_048_576 }),
  "gemini/gemini-2.5-flash": model(0.3, 2.5, { maxOutput: 65_536, maxInput: 1_048_576 }),
  "gemini/gemini-2.5-flash-lite": model(0.1, 0.4, { maxOutput: 65_536, maxInput: 1_048_576 }),
  "gemini/gemini-embedding-001": model(0.15, 0, { maxInput: 2_048 }),
  // groq.com/pricing
  "groq/llama-3.3-70b-versatile": model(0.59, 0.79, { maxOutput: 32_768, maxInput: 131_072 }),
  "groq/llama-3.1-8b-instant": model(0.05, 0.08, { maxOutput: 131_072, maxInput: 131_072 }),
  // cohere.com/pricing
  "cohere/command-a-03-2025": model(2.5, 10, { maxOutput: 8_000, maxInput: 256_000 }),
  "cohere/command-r-plus-08-2024": model(2.5, 10, { maxOutput: 4_000, maxInput: 128_000 }),
  "cohere/command-r-08-2024": model(0.15, 0.6, { maxOutput: 4_000, maxInput: 128_000 })
}

const release = /-(?:\d{4}-\d{2}-\d{2}|\d{8}|latest)$/

/**
 * What is known about `provider/name`. A dated release (`gpt-4o-2024-08-06`, `claude-opus-4-5-20251101`) reads as its
 * model; a name that merely begins like a known one does not. An Azure deployment's name says nothing about its model.
 */
export const knownModel = (provider: string, name: string): KnownModel | undefined => {
  const key = `${provider}/${name}`.toLowerCase()
  if (Object.hasOwn(knownModels, key)) return knownModels[key]
  const undated = key.replace(release, "")
  return undated !== key && Object.hasOwn(knownModels, undated) ? knownModels[undated] : undefined
}
