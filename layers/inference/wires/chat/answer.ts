/** Chat completions as the client gets them, built from what an upstream of another shape answered. */
import type { Json, JsonObject } from "#domain/json.ts"
import { completionTokens, promptTokens, totalTokens, type Usage } from "#domain/usage.ts"
import { jsonToolName } from "#layers/inference/wires/chat/fields.ts"
import { choiceTexts } from "#layers/inference/wires/openai-texts.ts"
import { malformedAnswer } from "#layers/inference/wires/problems.ts"
import { writeJson } from "#layers/inference/wires/values.ts"
import type { UpstreamCall } from "#services/inference/ProviderRouter.ts"
import type { DecodedAnswer, UpstreamProblem } from "#services/inference/Wire.ts"

export type FinishReason = "stop" | "length" | "tool_calls" | "content_filter"

/** What an answer and every chunk of a stream repeat. */
export interface ChatHead {
  readonly id: string
  /** Unix seconds. */
  readonly created: number
  readonly model: string
  /** Whether the only tool call is the answer in disguise (see `asJsonTool`). */
  readonly jsonTool: boolean
}

export const chatHead = (call: UpstreamCall, model: string, jsonTool = false): ChatHead => ({
  id: `chatcmpl-${call.requestId}`,
  created: Math.floor(Date.now() / 1000),
  model,
  jsonTool
})

export interface CalledTool {
  readonly id: string
  readonly name: string
  /** JSON text. */
  readonly arguments: string
  readonly signature?: string | undefined
}

export interface ChatChoice {
  readonly content: string
  readonly reasoning: string
  readonly thinking: ReadonlyArray<JsonObject>
  readonly calls: ReadonlyArray<CalledTool>
  readonly finish: FinishReason
}

/** Choices and calls beyond this are no answer that anybody asked for. */
export const mostCalls = 1_024

/** The usage object of the OpenAI shape; its totals hold what its details name. */
export const usageObject = (usage: Usage): JsonObject => ({
  prompt_tokens: promptTokens(usage),
  completion_tokens: completionTokens(usage),
  total_tokens: totalTokens(usage),
  prompt_tokens_details: {
    cached_tokens: usage.cacheRead,
    ...(usage.cacheWrite === 0 ? {} : { cache_write_tokens: usage.cacheWrite }),
    ...(usage.audioInput === 0 ? {} : { audio_tokens: usage.audioInput })
  },
  completion_tokens_details: {
    reasoning_tokens: usage.reasoning,
    ...(usage.audioOutput === 0 ? {} : { audio_tokens: usage.audioOutput })
  }
})

/** A call as it stands in a message. What Gemini signs it with travels where Google's own OpenAI shape puts it. */
export const callObject = (call: CalledTool): Record<string, Json> => ({
  id: call.id,
  type: "function",
  function: { name: call.name, arguments: call.arguments },
  ...(call.signature === undefined ? {} : { extra_content: { google: { thought_signature: call.signature } } })
})

const choiceObject = (choice: ChatChoice, index: number, jsonTool: boolean): JsonObject => {
  const answer = jsonTool ? choice.calls.find((call) => call.name === jsonToolName) : undefined
  const content = answer === undefined ? choice.content : answer.arguments
  const calls = answer === undefined ? choice.calls : []
  return {
    index,
    message: {
      role: "assistant",
      content: content === "" && (calls.length > 0 || choice.finish === "content_filter") ? null : content,
      refusal: null,
      ...(choice.reasoning === "" ? {} : { reasoning_content: choice.reasoning }),
      ...(choice.thinking.length === 0 ? {} : { thinking_blocks: choice.thinking }),
      ...(calls.length === 0 ? {} : { tool_calls: calls.map(callObject) })
    },
    logprobs: null,
    finish_reason: answer !== undefined && choice.finish === "tool_calls" ? "stop" : choice.finish
  }
}

/** The chat completion itself. */
export const chatObject = (
  head: ChatHead,
  choices: ReadonlyArray<ChatChoice>,
  usage: Usage | undefined
): JsonObject => ({
  id: head.id,
  object: "chat.completion",
  created: head.created,
  model: head.model,
  choices: choices.map((choice, index) => choiceObject(choice, index, head.jsonTool)),
  ...(usage === undefined ? {} : { usage: usageObject(usage) })
})

/** An answer object as bytes for the client. */
export const answered = (answer: JsonObject, usage: Usage | undefined): DecodedAnswer | UpstreamProblem => {
  const text = writeJson(answer)
  if (text === undefined) return malformedAnswer("it is nested too deeply")
  return {
    contentType: "application/json",
    body: Buffer.from(text),
    usage,
    texts: () => choiceTexts(answer)
  }
}
