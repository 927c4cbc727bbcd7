/** Answers of the Messages API as chat completions. */
import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"
import { type Usage, usageOf } from "#domain/usage.ts"
import {
  type CalledTool,
  type ChatChoice,
  type ChatHead,
  chatObject,
  type FinishReason,
  mostCalls
} from "#layers/inference/wires/chat/answer.ts"
import { malformedAnswer } from "#layers/inference/wires/problems.ts"
import { countOf, listOf, objectOf, objectsOf, stringOf, writeJson } from "#layers/inference/wires/values.ts"
import type { UpstreamProblem } from "#services/inference/Wire.ts"

/**
 * A `usage` object in disjoint buckets: Anthropic reports cache reads and writes beside the input, and thinking as a part
 * of the output. Undefined: not a usage object.
 */
export const usageOfAnthropic = (value: Json | undefined): Usage | undefined => {
  if (!isJsonObject(value) || value["output_tokens"] === undefined) return undefined
  const output = countOf(value["output_tokens"])
  const reasoning = Math.min(output, countOf(objectOf(value["output_tokens_details"])["thinking_tokens"]))
  return usageOf({
    input: countOf(value["input_tokens"]),
    cacheRead: countOf(value["cache_read_input_tokens"]),
    cacheWrite: countOf(value["cache_creation_input_tokens"]),
    output: output - reasoning,
    reasoning
  })
}

/** Later reports of a stream are totals; what they leave out, or null, stands as it was. */
export const mergedUsage = (before: JsonObject, later: Json | undefined): JsonObject => {
  const known = Object.entries(objectOf(later)).filter(([, value]) => value !== null)
  return { ...before, ...Object.fromEntries(known) }
}

const reasons: Readonly<Record<string, FinishReason>> = {
  end_turn: "stop",
  stop_sequence: "stop",
  pause_turn: "stop",
  max_tokens: "length",
  model_context_window_exceeded: "length",
  tool_use: "tool_calls",
  refusal: "content_filter"
}

export const finishOf = (reason: Json | undefined): FinishReason => reasons[stringOf(reason) ?? ""] ?? "stop"

const isThinking = (block: JsonObject): boolean => block["type"] === "thinking" || block["type"] === "redacted_thinking"

/** What a message generated, in order, for guardrails and estimates. */
export const blockTexts = (blocks: ReadonlyArray<JsonObject>): ReadonlyArray<string> =>
  blocks.map((block) =>
    block["type"] === "tool_use"
      ? (stringOf(block["name"]) ?? "") + (writeJson(block["input"] ?? {}) ?? "")
      : (stringOf(block["text"]) ?? stringOf(block["thinking"]) ?? "")
  )

const callOf = (block: JsonObject): CalledTool | undefined => {
  const written = writeJson(isJsonObject(block["input"]) ? block["input"] : {})
  const id = stringOf(block["id"])
  const name = stringOf(block["name"])
  return written === undefined || id === undefined || name === undefined ? undefined : { id, name, arguments: written }
}

/** A `message` object as a chat completion; a problem when it is none. */
export const chatOfMessage = (message: JsonObject, head: ChatHead): JsonObject | UpstreamProblem => {
  if (!Array.isArray(message["content"])) return malformedAnswer("it has no content")
  const blocks = objectsOf(message["content"])
  const uses = blocks.filter((block) => block["type"] === "tool_use")
  const calls = uses.map(callOf).filter((call) => call !== undefined)
  if (calls.length !== uses.length || listOf(message["content"]).length !== blocks.length || calls.length > mostCalls) {
    return malformedAnswer("a tool call cannot be read")
  }
  const thinking = blocks.filter(isThinking)
  const choice: ChatChoice = {
    content: blocks.map((block) => (block["type"] === "text" ? (stringOf(block["text"]) ?? "") : "")).join(""),
    reasoning: thinking.map((block) => stringOf(block["thinking"]) ?? "").join(""),
    thinking,
    calls,
    finish: finishOf(message["stop_reason"])
  }
  const model = stringOf(message["model"]) ?? head.model
  return chatObject({ ...head, model }, [choice], usageOfAnthropic(message["usage"]))
}
