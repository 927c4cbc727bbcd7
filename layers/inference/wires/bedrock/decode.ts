/** Answers of Bedrock's Converse as chat completions. */
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
import { countOf, objectOf, objectsOf, stringOf, writeJson } from "#layers/inference/wires/values.ts"
import type { UpstreamProblem } from "#services/inference/Wire.ts"

/** A `usage` object in disjoint buckets: cache reads and writes are reported beside the input. Undefined: none. */
export const usageOfConverse = (value: Json | undefined): Usage | undefined =>
  isJsonObject(value) && value["outputTokens"] !== undefined
    ? usageOf({
        input: countOf(value["inputTokens"]),
        cacheRead: countOf(value["cacheReadInputTokens"]),
        cacheWrite: countOf(value["cacheWriteInputTokens"]),
        output: countOf(value["outputTokens"])
      })
    : undefined

const reasons: Readonly<Record<string, FinishReason>> = {
  end_turn: "stop",
  stop_sequence: "stop",
  max_tokens: "length",
  model_context_window_exceeded: "length",
  tool_use: "tool_calls",
  guardrail_intervened: "content_filter",
  content_filtered: "content_filter"
}

export const finishOf = (reason: Json | undefined): FinishReason | UpstreamProblem => {
  if (reason === "malformed_model_output" || reason === "malformed_tool_use") {
    return malformedAnswer("the model's output is malformed")
  }
  return reasons[stringOf(reason) ?? ""] ?? "stop"
}

const callOf = (block: JsonObject): CalledTool | undefined => {
  const use = objectOf(block["toolUse"])
  const id = stringOf(use["toolUseId"])
  const name = stringOf(use["name"])
  const written = writeJson(objectOf(use["input"]))
  return id === undefined || name === undefined || written === undefined ? undefined : { id, name, arguments: written }
}

const textOf = (block: JsonObject): string =>
  stringOf(block["text"]) ??
  objectsOf(objectOf(block["citationsContent"])["content"])
    .map((one) => stringOf(one["text"]) ?? "")
    .join("")

const thinkingOf = (block: JsonObject): ReadonlyArray<JsonObject> => {
  const reasoning = objectOf(block["reasoningContent"])
  const redacted = stringOf(reasoning["redactedContent"])
  if (redacted !== undefined) return [{ type: "redacted_thinking", data: redacted }]
  const { signature, text } = objectOf(reasoning["reasoningText"])
  return typeof signature === "string" ? [{ type: "thinking", thinking: text ?? "", signature }] : []
}

/** A Converse answer as a chat completion; a problem when it is none. */
export const chatOfConverse = (answer: JsonObject, head: ChatHead): JsonObject | UpstreamProblem => {
  const { message } = objectOf(answer["output"])
  if (!isJsonObject(message)) return malformedAnswer("it has no message")
  const finish = finishOf(answer["stopReason"])
  if (typeof finish === "object") return finish
  const blocks = objectsOf(message["content"])
  const uses = blocks.filter((block) => block["toolUse"] !== undefined)
  const calls = uses.map(callOf).filter((call) => call !== undefined)
  if (calls.length !== uses.length || calls.length > mostCalls) return malformedAnswer("a tool call cannot be read")
  const choice: ChatChoice = {
    content: blocks.map(textOf).join(""),
    reasoning: blocks
      .map((block) => stringOf(objectOf(objectOf(block["reasoningContent"])["reasoningText"])["text"]) ?? "")
      .join(""),
    thinking: blocks.flatMap(thinkingOf),
    calls,
    finish
  }
  return chatObject(head, [choice], usageOfConverse(answer["usage"]))
}
