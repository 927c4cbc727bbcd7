/** Chat requests in the shape of Cohere's chat (docs.cohere.com/reference/chat, version 2). */
import { InvalidRequest } from "#domain/errors.ts"
import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"
import { cannotCarry, checkFields } from "#layers/inference/wires/chat/fields.ts"
import { conversationFault, type Part, plainText } from "#layers/inference/wires/chat/parts.ts"
import { type ChatRequest, type Effort, readChat, type Turn } from "#layers/inference/wires/chat/request.ts"
import type { EmbeddingRequest } from "#layers/inference/wires/embeddings.ts"
import { unsupportedParameter } from "#layers/inference/wires/problems.ts"
import { listOf, present, stringOf, writeJson } from "#layers/inference/wires/values.ts"
import type { UpstreamCall } from "#services/inference/ProviderRouter.ts"
import type { WireTarget } from "#services/inference/Wire.ts"

const carried = new Set(["seed", "presence_penalty", "frequency_penalty", "top_k", "safety_mode", "thinking"])

const budgets: Readonly<Record<Exclude<Effort, "none">, number>> = {
  minimal: 512,
  low: 1_024,
  medium: 4_096,
  high: 16_384,
  xhigh: 24_576,
  max: 31_000
}

const thinkingOf = ({ effort, maxTokens }: ChatRequest): JsonObject | undefined => {
  if (effort === undefined) return undefined
  if (effort === "none") return { type: "disabled" }
  const most = maxTokens === undefined ? budgets[effort] : Math.max(1, maxTokens - 1)
  return { type: "enabled", token_budget: Math.min(budgets[effort], most) }
}

const partObject = (part: Part, provider: string): JsonObject => {
  switch (part.kind) {
    case "text":
      return { type: "text", text: part.text }
    case "image":
      return { type: "image_url", image_url: { url: `data:${part.inline.mime};base64,${part.inline.data}` } }
    case "link":
      return { type: "image_url", image_url: { url: part.url } }
    default:
      throw unsupportedParameter(part.param, provider)
  }
}

const onlyText = (parts: ReadonlyArray<Part>, provider: string): string => {
  const other = parts.find((part) => part.kind !== "text")
  if (other !== undefined) throw unsupportedParameter(other.param, provider)
  return plainText(parts)
}

const messageOf = (turn: Turn, provider: string): JsonObject | undefined => {
  switch (turn.role) {
    case "system":
      return { role: "system", content: onlyText(turn.parts, provider) }
    case "user":
      return turn.parts.every((part) => part.kind === "text")
        ? { role: "user", content: plainText(turn.parts) }
        : { role: "user", content: turn.parts.map((part) => partObject(part, provider)) }
    case "tool":
      return { role: "tool", tool_call_id: turn.callId, content: onlyText(turn.parts, provider) }
    case "assistant": {
      const text = onlyText(turn.parts, provider)
      if (turn.calls.length === 0) return text === "" ? undefined : { role: "assistant", content: text }
      return {
        role: "assistant",
        // What is said beside calls is Cohere's plan for them.
        ...(text === "" ? {} : { tool_plan: text }),
        tool_calls: turn.calls.map((call) => ({
          id: call.id,
          type: "function",
          function: { name: call.name, arguments: JSON.stringify(call.arguments) }
        }))
      }
    }
  }
}

/** One tool of several is chosen by offering no other. */
const offered = ({ toolChoice, tools }: ChatRequest): ChatRequest["tools"] =>
  typeof toolChoice === "object" ? tools.filter((tool) => tool.name === toolChoice.name) : tools

const toolChoiceOf = ({ toolChoice, tools }: ChatRequest): string | undefined => {
  if (tools.length === 0 || toolChoice === undefined || toolChoice === "auto") return undefined
  return toolChoice === "none" ? "NONE" : "REQUIRED"
}

const given = (value: Json | undefined): Json | undefined => value ?? undefined

/** Throws an InvalidRequest for what cannot be carried. */
export const encodeCohereChat = (call: UpstreamCall, target: WireTarget): JsonObject => {
  const { body } = call
  const { provider, upstreamModel: model } = target
  checkFields(body, carried, target)
  const request = readChat(call, provider)
  if (request.parallelCalls === false && request.tools.length > 0) cannotCarry("parallel_tool_calls", target)
  const messages = request.turns.map((turn) => messageOf(turn, provider)).filter((one) => one !== undefined)
  if (messages.length === 0) throw conversationFault("messages", "hold nothing but empty messages.")
  const tools = offered(request)
  if (tools.length === 0 && request.tools.length > 0) throw unsupportedParameter("tool_choice", provider)
  const { format } = request
  return present({
    model,
    messages,
    stream: call.stream,
    tools:
      tools.length === 0
        ? undefined
        : tools.map((tool) => ({
            type: "function",
            function: present({ name: tool.name, description: tool.description, parameters: tool.schema })
          })),
    strict_tools: tools.length > 0 && tools.every((tool) => tool.strict) ? true : undefined,
    tool_choice: toolChoiceOf(request),
    response_format:
      format === undefined
        ? undefined
        : { type: "json_object", ...(format.type === "json_schema" ? { json_schema: format.schema } : {}) },
    max_tokens: request.maxTokens,
    stop_sequences: request.stop.length === 0 ? undefined : request.stop,
    temperature: request.temperature,
    p: request.topP,
    k: given(body["top_k"]),
    seed: given(body["seed"]),
    frequency_penalty: given(body["frequency_penalty"]),
    presence_penalty: given(body["presence_penalty"]),
    safety_mode: given(body["safety_mode"]),
    thinking: given(body["thinking"]) ?? thinkingOf(request)
  })
}

/** Cohere asks what the vectors are for; documents to be searched, where the client does not say (`input_type`). */
export const encodeCohereEmbed = (request: EmbeddingRequest, body: JsonObject, model: string): JsonObject =>
  present({
    model,
    texts: request.texts,
    input_type: stringOf(body["input_type"]) ?? "search_document",
    embedding_types: ["float"],
    output_dimension: request.dimensions,
    truncate: given(body["truncate"])
  })

const mostDocuments = 10_000

export interface RerankQuestion {
  readonly body: JsonObject
  /** In the order of the request. */
  readonly documents: ReadonlyArray<string>
  readonly returnDocuments: boolean
}

const rerankFields = new Set([
  "model",
  "query",
  "documents",
  "top_n",
  "return_documents",
  "max_tokens_per_doc",
  "max_chunks_per_doc",
  "user"
])

const documentText = (document: Json): string | undefined => {
  if (typeof document === "string") return document
  return isJsonObject(document) ? (stringOf(document["text"]) ?? writeJson(document)) : undefined
}

/** A `rerank` call in the shape of docs.cohere.com/reference/rerank, version 2: documents are texts. */
export const encodeRerank = (call: UpstreamCall, target: WireTarget): RerankQuestion => {
  const { body } = call
  const fault = (param: string, message: string) =>
    new InvalidRequest({ code: "unsupported_parameter", message: `'${param}' ${message}`, param })
  const unknown = Object.keys(body).find((name) => body[name] !== null && !rerankFields.has(name))
  if (unknown !== undefined) cannotCarry(unknown.slice(0, 200), target)
  const query = stringOf(body["query"])
  if (query === undefined) throw fault("query", "must be a text.")
  const list = listOf(body["documents"])
  const documents = list.map(documentText).filter((text) => text !== undefined)
  if (list.length === 0 || documents.length !== list.length || list.length > mostDocuments) {
    throw fault("documents", `must be a list of at most ${mostDocuments} texts.`)
  }
  return {
    documents,
    returnDocuments: body["return_documents"] === true,
    body: present({
      model: target.upstreamModel,
      query,
      documents,
      top_n: given(body["top_n"]),
      max_tokens_per_doc: given(body["max_tokens_per_doc"])
    })
  }
}
