/** What the names of Claude models say about what they take (platform.claude.com, "Extended thinking", "Adaptive thinking"). */
import type { JsonObject } from "#domain/json.ts"
import { cannotCarry, type FieldPolicy } from "#layers/inference/wires/chat/fields.ts"
import type { ChatRequest, Effort } from "#layers/inference/wires/chat/request.ts"

/**
 * The generation in a model's name (`claude-3-7-sonnet-20250219` is 3.7, `claude-opus-5` is 5), also behind a provider's
 * prefix. A name without one is taken for the newest.
 */
export const claudeGeneration = (model: string): number => {
  const words = model.toLowerCase().split(/[^a-z0-9]+/)
  const at = words.findIndex((word, index) => index > words.indexOf("claude") && /^\d{1,2}$/.test(word))
  if (!words.includes("claude") || at === -1) return Number.POSITIVE_INFINITY
  const minor = words[at + 1] ?? ""
  return Number(words[at]) + (/^\d{1,2}$/.test(minor) ? Number(minor) / 10 : 0)
}

/** From here on the model decides how long it thinks, guided by an effort; before, thinking has a budget. */
const adaptiveFrom = 4.6
/** From here on sampling parameters are refused. */
const unsampledFrom = 4.7
/** From here on answers follow a schema. */
const structuredFrom = 4.5
/** From here on models think at all. */
const thinkingFrom = 3.7

export const followsSchemas = (model: string): boolean => claudeGeneration(model) >= structuredFrom

const budgets: Readonly<Record<Exclude<Effort, "none">, number>> = {
  minimal: 1_024,
  low: 2_048,
  medium: 8_192,
  high: 16_384,
  xhigh: 32_768,
  max: 65_536
}

const leastBudget = 1_024

/** `thinking` and `output_config.effort` for a `reasoning_effort`; empty: the model does not think for this request. */
export interface Thinking {
  readonly thinking?: JsonObject
  readonly effort?: string
}

export const thinkingOf = (request: ChatRequest, model: string, maxTokens: number, policy: FieldPolicy): Thinking => {
  const { effort } = request
  if (effort === undefined || effort === "none") return {}
  const generation = claudeGeneration(model)
  if (generation >= adaptiveFrom) {
    // Newer models answer with empty thinking unless a summary is asked for.
    const display = generation >= unsampledFrom ? { display: "summarized" } : {}
    return { thinking: { type: "adaptive", ...display }, effort: effort === "minimal" ? "low" : effort }
  }
  const budget = Math.min(budgets[effort], maxTokens - 1)
  if (generation < thinkingFrom || budget < leastBudget) {
    cannotCarry("reasoning_effort", policy)
    return {}
  }
  return { thinking: { type: "enabled", budget_tokens: budget } }
}

/** `temperature` and `top_p` as far as the model takes them. */
export const samplingOf = (
  request: ChatRequest,
  model: string,
  thinks: boolean,
  policy: FieldPolicy
): { readonly temperature?: number; readonly topP?: number } => {
  const unsampled = claudeGeneration(model) >= unsampledFrom
  const take = (param: string, value: number | undefined, refused: boolean): number | undefined => {
    if (value === undefined || !refused) return value
    if (value !== 1) cannotCarry(param, policy)
    return undefined
  }
  const { temperature: wanted } = request
  const temperature = take("temperature", wanted, unsampled || thinks || (wanted !== undefined && wanted > 1))
  const topP = take("top_p", request.topP, unsampled)
  return { ...(temperature === undefined ? {} : { temperature }), ...(topP === undefined ? {} : { topP }) }
}
