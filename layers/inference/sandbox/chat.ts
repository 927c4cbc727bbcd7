import { createHash } from "node:crypto"
import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"
import { valueFor } from "#layers/inference/sandbox/from-schema.ts"
import { countTokens, tokensOf } from "#layers/inference/sandbox/tokens.ts"

/** The longest quotation of the prompt in an answer, in characters. */
const quotedLength = 400
const mostChoices = 8

interface Message {
  readonly role: string
  readonly text: string
}

const textOf = (content: Json | undefined): string => {
  if (typeof content === "string") return content
  if (!Array.isArray(content)) return ""
  return (content as ReadonlyArray<Json>)
    .map((part) => (isJsonObject(part) && typeof part["text"] === "string" ? part["text"] : ""))
    .join(" ")
}

const messagesOf = (body: JsonObject): ReadonlyArray<Message> =>
  Array.isArray(body["messages"])
    ? (body["messages"] as ReadonlyArray<Json>)
        .filter(isJsonObject)
        .map((message) => ({ role: String(message["role"]), text: textOf(message["content"]) }))
    : []

interface Tool {
  readonly name: string
  readonly parameters: Json
}

const toolsOf = (body: JsonObject): ReadonlyArray<Tool> =>
  Array.isArray(body["tools"])
    ? (body["tools"] as ReadonlyArray<Json>).flatMap((tool) => {
        const described = isJsonObject(tool) ? tool["function"] : undefined
        return isJsonObject(described) && typeof described["name"] === "string"
          ? [{ name: described["name"], parameters: described["parameters"] ?? null }]
          : []
      })
    : []

/** The tool to call: the one that `tool_choice` names or requires, or that the last message speaks of. */
const chosenTool = (body: JsonObject, last: Message | undefined): Tool | undefined => {
  const tools = toolsOf(body)
  const choice = body["tool_choice"]
  if (choice === "none" || last?.role === "tool") return undefined
  if (choice === "required") return tools[0]
  if (isJsonObject(choice)) {
    const named = isJsonObject(choice["function"]) ? choice["function"]["name"] : choice["name"]
    return tools.find((tool) => tool.name === named)
  }
  const text = last?.text.toLowerCase() ?? ""
  const spoken = tools.find((tool) => text.includes(tool.name.toLowerCase().replaceAll("_", " ")))
  const named = tools.find((tool) => text.includes(tool.name.toLowerCase()))
  return named ?? spoken ?? (/\b(call|use)\b.{0,40}\b(tool|function)\b/.test(text) ? tools[0] : undefined)
}

const contentFor = (body: JsonObject, last: Message | undefined): string => {
  const text = (last?.text ?? "").slice(0, quotedLength)
  const format = isJsonObject(body["response_format"]) ? body["response_format"] : {}
  if (format["type"] === "json_object") return JSON.stringify({ answer: text })
  if (format["type"] === "json_schema" && isJsonObject(format["json_schema"])) {
    return JSON.stringify(valueFor(format["json_schema"]["schema"], text))
  }
  if (last?.role === "tool") return `The tool answered: ${text}`
  return text === "" ? "The sandbox has nothing to answer." : `The sandbox heard: ${text}`
}

const stopsOf = (stop: Json | undefined): ReadonlyArray<string> =>
  (Array.isArray(stop) ? (stop as ReadonlyArray<Json>) : [stop]).filter(
    (one): one is string => typeof one === "string" && one !== ""
  )

const beforeStop = (text: string, stop: Json | undefined): string => {
  const ends = stopsOf(stop)
    .map((one) => text.indexOf(one))
    .filter((at) => at !== -1)
  return ends.length === 0 ? text : text.slice(0, Math.min(...ends))
}

/** What the sandbox answers to a chat request: the same for the same request. */
export interface SandboxChat {
  readonly id: string
  readonly choices: number
  /** The content in tokens; empty when a tool is called. */
  readonly content: ReadonlyArray<string>
  readonly call: { readonly id: string; readonly name: string; readonly arguments: string } | undefined
  readonly finishReason: "stop" | "length" | "tool_calls"
  readonly usage: JsonObject
}

export const sandboxChat = (body: JsonObject): SandboxChat => {
  const messages = messagesOf(body)
  const last = messages.at(-1)
  const id = createHash("sha256").update(JSON.stringify(body)).digest("hex").slice(0, 24)
  const asked = Number(body["n"] ?? 1)
  const choices = Number.isInteger(asked) ? Math.min(Math.max(asked, 1), mostChoices) : 1
  const tool = chosenTool(body, last)
  const limit = body["max_completion_tokens"] ?? body["max_tokens"]
  const most = typeof limit === "number" && limit >= 0 ? limit : Number.POSITIVE_INFINITY
  const whole = tool === undefined ? tokensOf(beforeStop(contentFor(body, last), body["stop"])) : []
  const content = whole.slice(0, most)
  const call =
    tool === undefined
      ? undefined
      : { id: `call_${id}`, name: tool.name, arguments: JSON.stringify(valueFor(tool.parameters, last?.text ?? "")) }
  const prompt = messages.reduce((sum, message) => sum + countTokens(message.text) + 4, 0)
  const completion = choices * (call === undefined ? content.length : countTokens(call.name + call.arguments))
  return {
    id: `chatcmpl-${id}`,
    choices,
    content,
    call,
    finishReason: call !== undefined ? "tool_calls" : content.length < whole.length ? "length" : "stop",
    usage: {
      prompt_tokens: prompt,
      completion_tokens: completion,
      total_tokens: prompt + completion,
      prompt_tokens_details: { cached_tokens: 0 },
      completion_tokens_details: { reasoning_tokens: 0 }
    }
  }
}

const toolCalls = (chat: SandboxChat, streamed: boolean) =>
  chat.call === undefined
    ? {}
    : {
        tool_calls: [
          {
            ...(streamed ? { index: 0 } : {}),
            id: chat.call.id,
            type: "function",
            function: { name: chat.call.name, arguments: chat.call.arguments }
          }
        ]
      }

const indexes = (chat: SandboxChat): ReadonlyArray<number> => Array.from({ length: chat.choices }, (_, index) => index)

/** The whole answer. `created` is in Unix seconds. */
export const chatAnswer = (model: string, chat: SandboxChat, created: number): JsonObject => ({
  id: chat.id,
  object: "chat.completion",
  created,
  model,
  choices: indexes(chat).map((index) => ({
    index,
    message: {
      role: "assistant",
      content: chat.call === undefined ? chat.content.join("") : null,
      refusal: null,
      ...toolCalls(chat, false)
    },
    logprobs: null,
    finish_reason: chat.finishReason
  })),
  usage: chat.usage,
  system_fingerprint: "fp_sandbox"
})

/** The events of the stream in order, without `[DONE]`. */
export function* chatChunks(
  model: string,
  chat: SandboxChat,
  created: number,
  usage: boolean
): Generator<JsonObject, void> {
  const base = { id: chat.id, object: "chat.completion.chunk", created, model, system_fingerprint: "fp_sandbox" }
  const event = (index: number, delta: JsonObject, finish: string | null): JsonObject => ({
    ...base,
    choices: [{ index, delta, logprobs: null, finish_reason: finish }],
    ...(usage ? { usage: null } : {})
  })
  for (const index of indexes(chat)) {
    yield event(
      index,
      { role: "assistant", content: chat.call === undefined ? "" : null, ...toolCalls(chat, true) },
      null
    )
    for (const content of chat.content) yield event(index, { content }, null)
    yield event(index, {}, chat.finishReason)
  }
  if (usage) yield { ...base, choices: [], usage: chat.usage }
}
