/** Answers of the Gemini API as chat completions. */
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

const audioTokens = (details: Json | undefined): number =>
  objectsOf(details)
    .filter((one) => one["modality"] === "AUDIO")
    .reduce((sum, one) => sum + countOf(one["tokenCount"]), 0)

/**
 * `usageMetadata` in disjoint buckets: cached tokens are a part of the prompt, tokens of tool prompts and thoughts stand
 * beside prompt and candidates. Undefined: not a usage object.
 */
export const usageOfGemini = (value: Json | undefined): Usage | undefined => {
  if (!isJsonObject(value) || value["promptTokenCount"] === undefined) return undefined
  const prompt = countOf(value["promptTokenCount"])
  const output = countOf(value["candidatesTokenCount"])
  const cacheRead = Math.min(prompt, countOf(value["cachedContentTokenCount"]))
  const spoken = audioTokens(value["promptTokensDetails"]) - audioTokens(value["cacheTokensDetails"])
  const audioInput = Math.min(prompt - cacheRead, Math.max(0, spoken))
  const audioOutput = Math.min(output, audioTokens(value["candidatesTokensDetails"]))
  return usageOf({
    input: prompt - cacheRead - audioInput + countOf(value["toolUsePromptTokenCount"]),
    cacheRead,
    audioInput,
    output: output - audioOutput,
    audioOutput,
    reasoning: countOf(value["thoughtsTokenCount"])
  })
}

const filtered = new Set([
  "SAFETY",
  "RECITATION",
  "LANGUAGE",
  "BLOCKLIST",
  "PROHIBITED_CONTENT",
  "SPII",
  "IMAGE_SAFETY",
  "IMAGE_PROHIBITED_CONTENT",
  "IMAGE_RECITATION"
])

/** The model wrote something that is no answer: another try may do better. */
const failed = new Set(["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE"])

/** Why a candidate ended; undefined: it has not. */
export const finishOf = (reason: Json | undefined, calls: number): FinishReason | UpstreamProblem | undefined => {
  if (typeof reason !== "string" || reason === "" || reason === "FINISH_REASON_UNSPECIFIED") return undefined
  if (failed.has(reason)) return malformedAnswer("the model's tool call is malformed")
  if (reason === "MAX_TOKENS") return "length"
  if (filtered.has(reason)) return "content_filter"
  return calls > 0 ? "tool_calls" : "stop"
}

export const isBlocked = (answer: JsonObject): boolean =>
  typeof objectOf(answer["promptFeedback"])["blockReason"] === "string"

/** A call as it stands in a part; undefined: it cannot be read. `id` is for models that name their calls not. */
export const callOf = (part: JsonObject, id: string): CalledTool | undefined => {
  const call = objectOf(part["functionCall"])
  const name = stringOf(call["name"])
  const written = writeJson(objectOf(call["args"]))
  if (name === undefined || written === undefined) return undefined
  const signature = stringOf(part["thoughtSignature"])
  return { id: stringOf(call["id"]) ?? id, name, arguments: written, ...(signature === undefined ? {} : { signature }) }
}

export const partsOf = (candidate: JsonObject): ReadonlyArray<JsonObject> =>
  objectsOf(objectOf(candidate["content"])["parts"])

const isThought = (part: JsonObject): boolean => part["thought"] === true

const textsOf = (parts: ReadonlyArray<JsonObject>): string => parts.map((part) => stringOf(part["text"]) ?? "").join("")

/** Everything a candidate generated. */
export const candidateText = (candidate: JsonObject): string =>
  partsOf(candidate)
    .map((part) => {
      const call = isJsonObject(part["functionCall"]) ? callOf(part, "") : undefined
      return call === undefined ? (stringOf(part["text"]) ?? "") : call.name + call.arguments
    })
    .join("")

const choiceOf = (candidate: JsonObject, at: number, head: ChatHead): ChatChoice | UpstreamProblem => {
  const parts = partsOf(candidate)
  const called = parts.filter((part) => isJsonObject(part["functionCall"]))
  const calls = called
    .map((part, index) => callOf(part, `call_${head.id.slice(-24)}_${at}_${index}`))
    .filter((call) => call !== undefined)
  if (calls.length !== called.length || calls.length > mostCalls) return malformedAnswer("a tool call cannot be read")
  const finish = finishOf(candidate["finishReason"], calls.length) ?? "stop"
  if (typeof finish === "object") return finish
  return {
    content: textsOf(parts.filter((part) => !isThought(part))),
    reasoning: textsOf(parts.filter(isThought)),
    thinking: [],
    calls,
    finish
  }
}

const blocked: ChatChoice = { content: "", reasoning: "", thinking: [], calls: [], finish: "content_filter" }

/** A GenerateContentResponse as a chat completion; a problem when it is none. */
export const chatOfGenerated = (answer: JsonObject, head: ChatHead): JsonObject | UpstreamProblem => {
  const candidates = objectsOf(answer["candidates"])
  if (candidates.length === 0 && !isBlocked(answer)) return malformedAnswer("it has no candidates")
  const choices: Array<ChatChoice> = []
  for (const [at, candidate] of candidates.entries()) {
    const choice = choiceOf(candidate, at, head)
    if ("_tag" in choice) return choice
    choices.push(choice)
  }
  const model = stringOf(answer["modelVersion"]) ?? head.model
  return chatObject(
    { ...head, model },
    choices.length === 0 ? [blocked] : choices,
    usageOfGemini(answer["usageMetadata"])
  )
}
