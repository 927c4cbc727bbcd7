/** A chat request as the client wrote it, read once into the form that every translating wire starts from. */
import { InvalidRequest } from "#domain/errors.ts"
import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"
import { conversationFault, type Part, partsOf } from "#layers/inference/wires/chat/parts.ts"
import { unsupportedParameter } from "#layers/inference/wires/problems.ts"
import { listOf, objectOf, objectsOf, parseJson, stringOf, writeJson } from "#layers/inference/wires/values.ts"
import type { UpstreamCall } from "#services/inference/ProviderRouter.ts"

export interface ToolCall {
  readonly id: string
  readonly name: string
  readonly arguments: JsonObject
  /** What Gemini asks to be handed back with the call. */
  readonly signature: string | undefined
}

/** `messages`, each with its JSON path. */
export type Turn =
  | { readonly role: "system"; readonly parts: ReadonlyArray<Part>; readonly param: string }
  | { readonly role: "user"; readonly parts: ReadonlyArray<Part>; readonly param: string }
  | {
      readonly role: "assistant"
      readonly parts: ReadonlyArray<Part>
      readonly calls: ReadonlyArray<ToolCall>
      /** Signed thinking of an earlier answer, in Anthropic's form. */
      readonly thinking: ReadonlyArray<JsonObject>
      readonly param: string
    }
  | {
      readonly role: "tool"
      readonly callId: string
      readonly parts: ReadonlyArray<Part>
      readonly cache: Json | undefined
      readonly param: string
    }

export interface Tool {
  readonly name: string
  readonly description: string | undefined
  readonly schema: JsonObject
  readonly strict: boolean
  readonly cache: Json | undefined
}

export type ToolChoice = "auto" | "none" | "required" | { readonly name: string }

export type ResponseFormat =
  | { readonly type: "json_object" }
  | {
      readonly type: "json_schema"
      readonly name: string
      readonly description: string | undefined
      readonly schema: JsonObject
    }

export interface ChatRequest {
  readonly turns: ReadonlyArray<Turn>
  readonly tools: ReadonlyArray<Tool>
  readonly toolChoice: ToolChoice | undefined
  readonly parallelCalls: boolean | undefined
  /** Undefined: plain text. */
  readonly format: ResponseFormat | undefined
  readonly maxTokens: number | undefined
  readonly temperature: number | undefined
  readonly topP: number | undefined
  readonly stop: ReadonlyArray<string>
  readonly effort: Effort | undefined
  readonly user: string | undefined
}

export const efforts = ["none", "minimal", "low", "medium", "high", "xhigh", "max"] as const
export type Effort = (typeof efforts)[number]

const mostMessages = 20_000
const mostTools = 1_024
const mostCalls = 1_024
const mostStops = 256

const argumentsOf = (text: Json | undefined, param: string): JsonObject => {
  if (text === undefined || text === null || text === "") return {}
  const value = typeof text === "string" ? parseJson(text) : text
  if (!isJsonObject(value) || writeJson(value) === undefined) throw conversationFault(param, "must be a JSON object.")
  return value
}

const callsOf = (message: JsonObject, param: string): ReadonlyArray<ToolCall> => {
  const calls = listOf(message["tool_calls"])
  if (calls.length > mostCalls) throw conversationFault(`${param}.tool_calls`, `has more than ${mostCalls} calls.`)
  return calls.map((call, at) => {
    const path = `${param}.tool_calls.${at}`
    const called = isJsonObject(call) ? objectOf(call["function"]) : {}
    const id = isJsonObject(call) ? stringOf(call["id"]) : undefined
    const name = stringOf(called["name"])
    if (id === undefined || id === "") throw conversationFault(`${path}.id`, "is missing.")
    if (name === undefined || name === "") throw conversationFault(`${path}.function.name`, "is missing.")
    const google = isJsonObject(call) ? objectOf(objectOf(call["extra_content"])["google"]) : {}
    return {
      id,
      name,
      arguments: argumentsOf(called["arguments"], `${path}.function.arguments`),
      signature: stringOf(google["thought_signature"])
    }
  })
}

const turnOf = (message: Json, param: string): Turn => {
  if (!isJsonObject(message)) throw conversationFault(param, "must be an object.")
  const parts = partsOf(message["content"], `${param}.content`)
  switch (message["role"]) {
    case "system":
    case "developer":
      return { role: "system", parts, param }
    case "user":
      return { role: "user", parts, param }
    case "assistant": {
      const refusal = stringOf(message["refusal"])
      const said: ReadonlyArray<Part> =
        parts.length === 0 && refusal !== undefined ? partsOf(refusal, `${param}.refusal`) : parts
      const thinking = objectsOf(message["thinking_blocks"])
      return { role: "assistant", parts: said, calls: callsOf(message, param), thinking, param }
    }
    case "tool": {
      const callId = stringOf(message["tool_call_id"])
      if (callId === undefined || callId === "") throw conversationFault(`${param}.tool_call_id`, "is missing.")
      return { role: "tool", callId, parts, cache: message["cache_control"], param }
    }
    default:
      throw conversationFault(`${param}.role`, "must be system, developer, user, assistant or tool.")
  }
}

const emptySchema: JsonObject = { type: "object", properties: {} }

const toolOf = (tool: Json, at: number, provider: string): Tool => {
  const described = isJsonObject(tool) && tool["type"] === "function" ? objectOf(tool["function"]) : undefined
  if (described === undefined || !isJsonObject(tool)) throw unsupportedParameter(`tools.${at}.type`, provider)
  const name = stringOf(described["name"])
  if (name === undefined || name === "") {
    const param = `tools.${at}.function.name`
    throw new InvalidRequest({ code: "unsupported_parameter", message: `'${param}' is missing.`, param })
  }
  const { parameters } = described
  return {
    name,
    description: stringOf(described["description"]),
    schema: isJsonObject(parameters) ? parameters : emptySchema,
    strict: described["strict"] === true,
    cache: tool["cache_control"] ?? described["cache_control"]
  }
}

const choiceOf = (choice: Json | undefined, provider: string): ToolChoice | undefined => {
  if (choice === undefined || choice === null) return undefined
  if (choice === "auto" || choice === "none" || choice === "required") return choice
  const name = stringOf(objectOf(objectOf(choice)["function"])["name"])
  if (name === undefined) throw unsupportedParameter("tool_choice", provider)
  return { name }
}

const formatOf = (format: Json | undefined, provider: string): ResponseFormat | undefined => {
  if (format === undefined || format === null) return undefined
  const { type, json_schema: described } = objectOf(format)
  if (type === "text") return undefined
  if (type === "json_object") return { type }
  if (type !== "json_schema") throw unsupportedParameter("response_format.type", provider)
  const { name, description, schema } = objectOf(described)
  return {
    type,
    name: stringOf(name) ?? "answer",
    description: stringOf(description),
    schema: isJsonObject(schema) ? schema : { type: "object" }
  }
}

const numberOf = (value: Json | undefined): number | undefined => (typeof value === "number" ? value : undefined)

const effortOf = (value: Json | undefined, provider: string): Effort | undefined => {
  if (value === undefined || value === null) return undefined
  const effort = efforts.find((one) => one === value)
  if (effort === undefined) throw unsupportedParameter("reasoning_effort", provider)
  return effort
}

const stopsOf = (stop: Json | undefined, provider: string): ReadonlyArray<string> => {
  if (stop === undefined || stop === null) return []
  const list = typeof stop === "string" ? [stop] : listOf(stop)
  const texts = list.filter((one): one is string => typeof one === "string")
  if (texts.length !== list.length || list.length > mostStops || (list.length === 0 && !Array.isArray(stop))) {
    throw unsupportedParameter("stop", provider)
  }
  return texts.filter((one) => one !== "")
}

/** Reads a `chat` or `completion` call. Throws an InvalidRequest that names what is at fault. */
export const readChat = (call: UpstreamCall, provider: string): ChatRequest => {
  const { body } = call
  const messages =
    call.operation === "completion" ? [{ role: "user", content: promptOf(body["prompt"]) }] : listOf(body["messages"])
  const tools = listOf(body["tools"])
  if (messages.length === 0) throw conversationFault("messages", "must not be empty.")
  if (messages.length > mostMessages) throw conversationFault("messages", `has more than ${mostMessages} messages.`)
  if (tools.length > mostTools) {
    const message = `'tools' has more than ${mostTools} tools.`
    throw new InvalidRequest({ code: "unsupported_parameter", message, param: "tools" })
  }
  const parallel = body["parallel_tool_calls"]
  return {
    turns: messages.map((message, at) => turnOf(message, `messages.${at}`)),
    tools: tools.map((tool, at) => toolOf(tool, at, provider)),
    toolChoice: choiceOf(body["tool_choice"], provider),
    parallelCalls: typeof parallel === "boolean" ? parallel : undefined,
    format: formatOf(body["response_format"], provider),
    maxTokens: numberOf(body["max_completion_tokens"]) ?? numberOf(body["max_tokens"]),
    temperature: numberOf(body["temperature"]),
    topP: numberOf(body["top_p"]),
    stop: stopsOf(body["stop"], provider),
    effort: effortOf(body["reasoning_effort"], provider),
    user: stringOf(body["user"]) ?? stringOf(body["safety_identifier"])
  }
}

/** A legacy prompt is one user message (model-api.md, "Chat, completions, embeddings"). */
const promptOf = (prompt: Json | undefined): string => {
  const list = listOf(prompt)
  const text = list.length === 1 ? list[0] : prompt
  if (typeof text === "string") return text
  throw new InvalidRequest({
    code: "unsupported_parameter",
    message: "'prompt' must be one text: lists of prompts and token lists are not supported.",
    param: "prompt"
  })
}

/** System and developer texts, wherever they stand: most upstreams take them only in front. */
export const systemParts = (request: ChatRequest): ReadonlyArray<Part> =>
  request.turns.flatMap((turn) => (turn.role === "system" ? turn.parts : []))
