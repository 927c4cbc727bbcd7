/** One answer in both shapes at once (decisions.md, section 7.5): a chat completion that also has `candidates`. */
import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"

const listOf = (value: Json | undefined): ReadonlyArray<Json> => (Array.isArray(value) ? value : [])
const objectOf = (value: Json | undefined): JsonObject => (isJsonObject(value) ? value : {})
const countOf = (value: Json | undefined): number => (typeof value === "number" && value > 0 ? value : 0)

/** Google's word for how a choice ended. */
export const finishOf = (reason: Json | undefined): string =>
  reason === "length" ? "MAX_TOKENS" : reason === "content_filter" ? "SAFETY" : "STOP"

const chatFinish = (reason: Json | undefined, calls: boolean): string => {
  if (reason === "MAX_TOKENS") return "length"
  if (calls) return "tool_calls"
  return reason === undefined || reason === "STOP" ? "stop" : "content_filter"
}

/** A tool call as a part; arguments that are no JSON object are handed over as the text they are. */
export const callPart = (call: JsonObject): JsonObject => {
  const called = objectOf(call["function"])
  const text = typeof called["arguments"] === "string" ? called["arguments"] : "{}"
  let args: Json
  try {
    args = JSON.parse(text === "" ? "{}" : text) as Json
  } catch {
    args = { arguments: text }
  }
  const signature = objectOf(objectOf(call["extra_content"])["google"])["thought_signature"]
  return {
    functionCall: { ...(call["id"] === undefined ? {} : { id: call["id"] }), name: called["name"] ?? "", args },
    ...(signature === undefined ? {} : { thoughtSignature: signature })
  }
}

/** The text parts of a message or delta. */
export const textParts = (message: JsonObject): ReadonlyArray<JsonObject> => {
  const reasoning = message["reasoning_content"] ?? message["reasoning"]
  const { content, refusal } = message
  const texts = typeof content === "string" ? [content] : listOf(content).map((part) => objectOf(part)["text"])
  return [
    ...(typeof reasoning === "string" && reasoning !== "" ? [{ text: reasoning, thought: true }] : []),
    ...[...texts, refusal].flatMap((text) => (typeof text === "string" && text !== "" ? [{ text }] : []))
  ]
}

/** OpenAI counts reasoning within the completion, Google beside it. */
export const usageMetadataOf = (usage: Json | undefined): JsonObject | undefined => {
  if (!isJsonObject(usage)) return undefined
  const completion = countOf(usage["completion_tokens"])
  const thoughts = countOf(objectOf(usage["completion_tokens_details"])["reasoning_tokens"])
  const cached = countOf(objectOf(usage["prompt_tokens_details"])["cached_tokens"])
  return {
    promptTokenCount: countOf(usage["prompt_tokens"]),
    candidatesTokenCount: Math.max(0, completion - thoughts),
    ...(thoughts === 0 ? {} : { thoughtsTokenCount: thoughts }),
    ...(cached === 0 ? {} : { cachedContentTokenCount: cached }),
    totalTokenCount: countOf(usage["total_tokens"])
  }
}

const withCandidates = (chat: JsonObject): JsonObject => {
  const usageMetadata = usageMetadataOf(chat["usage"])
  const candidates = listOf(chat["choices"]).map((one, at): Json => {
    const choice = objectOf(one)
    const message = objectOf(choice["message"])
    const calls = listOf(message["tool_calls"]).filter(isJsonObject).map(callPart)
    return {
      content: { role: "model", parts: [...textParts(message), ...calls] },
      finishReason: finishOf(choice["finish_reason"]),
      index: typeof choice["index"] === "number" ? choice["index"] : at
    }
  })
  return {
    ...chat,
    candidates,
    ...(usageMetadata === undefined ? {} : { usageMetadata }),
    modelVersion: chat["model"] ?? "",
    responseId: chat["id"] ?? ""
  }
}

const joined = (parts: ReadonlyArray<JsonObject>, thought: boolean): string =>
  parts
    .map((part) => ((part["thought"] === true) === thought && typeof part["text"] === "string" ? part["text"] : ""))
    .join("")

const choiceOf = (candidate: JsonObject, at: number): Json => {
  const parts = listOf(objectOf(candidate["content"])["parts"]).filter(isJsonObject)
  const calls = parts.flatMap((part, index) => {
    const called = part["functionCall"]
    if (!isJsonObject(called)) return []
    const signature = part["thoughtSignature"]
    return [
      {
        id: called["id"] ?? `call_${index}`,
        type: "function",
        function: { name: called["name"] ?? "", arguments: JSON.stringify(called["args"] ?? {}) },
        ...(signature === undefined ? {} : { extra_content: { google: { thought_signature: signature } } })
      }
    ]
  })
  const reasoning = joined(parts, true)
  const content = joined(parts, false)
  return {
    index: typeof candidate["index"] === "number" ? candidate["index"] : at,
    message: {
      role: "assistant",
      content: content === "" && calls.length > 0 ? null : content,
      ...(reasoning === "" ? {} : { reasoning_content: reasoning }),
      ...(calls.length === 0 ? {} : { tool_calls: calls })
    },
    finish_reason: chatFinish(candidate["finishReason"], calls.length > 0)
  }
}

const withChoices = (native: JsonObject, model: string, id: string, created: number): JsonObject => {
  const usage = native["usageMetadata"]
  const metadata = objectOf(usage)
  const thoughts = countOf(metadata["thoughtsTokenCount"])
  const prompt = countOf(metadata["promptTokenCount"]) + countOf(metadata["toolUsePromptTokenCount"])
  const completion = countOf(metadata["candidatesTokenCount"]) + thoughts
  return {
    ...native,
    id: `chatcmpl-${typeof native["responseId"] === "string" ? native["responseId"] : id}`,
    object: "chat.completion",
    created,
    model: typeof native["modelVersion"] === "string" ? native["modelVersion"] : model,
    choices: listOf(native["candidates"]).filter(isJsonObject).map(choiceOf),
    candidates: listOf(native["candidates"]),
    ...(isJsonObject(usage)
      ? {
          usage: {
            prompt_tokens: prompt,
            completion_tokens: completion,
            total_tokens: countOf(metadata["totalTokenCount"]) || prompt + completion,
            prompt_tokens_details: { cached_tokens: countOf(metadata["cachedContentTokenCount"]) },
            completion_tokens_details: { reasoning_tokens: thoughts }
          }
        }
      : {})
  }
}

/** Whatever shape an answer came in, in both. `created` is in Unix seconds. */
export const inBothShapes = (answer: JsonObject, model: string, id: string, created: number): JsonObject =>
  answer["choices"] === undefined ? withChoices(answer, model, id, created) : withCandidates(answer)
