/** Chat and embedding requests in the shape of the Gemini API (ai.google.dev/api/generate-content). */
import type { Json, JsonObject } from "#domain/json.ts"
import { cannotCarry, checkFields, type FieldPolicy } from "#layers/inference/wires/chat/fields.ts"
import { conversationFault, type Part, plainText } from "#layers/inference/wires/chat/parts.ts"
import {
  type ChatRequest,
  type Effort,
  readChat,
  systemParts,
  type ToolCall,
  type Turn
} from "#layers/inference/wires/chat/request.ts"
import type { EmbeddingRequest } from "#layers/inference/wires/embeddings.ts"
import { unsupportedParameter } from "#layers/inference/wires/problems.ts"
import { isJsonObject } from "#domain/json.ts"
import { listOf, objectOf, parseJson, present } from "#layers/inference/wires/values.ts"
import type { UpstreamCall } from "#services/inference/ProviderRouter.ts"
import type { WireTarget } from "#services/inference/Wire.ts"

const carried = new Set(["n", "seed", "presence_penalty", "frequency_penalty", "top_k", "safety_settings"])

/** The generation in a model's name (`gemini-2.5-flash` is 2.5); undefined: not a Gemini model. The newest has none. */
export const geminiGeneration = (model: string): number | undefined => {
  const name = /gemini-?(\d+(?:\.\d+)?)?/i.exec(model)
  if (name === null) return undefined
  return name[1] === undefined ? Number.POSITIVE_INFINITY : Number(name[1])
}

/** From here on thinking has levels; before, a budget. */
const levelsFrom = 3
const thinkingFrom = 2.5

/** What Google's own OpenAI-shaped interface makes of `reasoning_effort`. */
const budgets: Readonly<Record<Effort, number>> = {
  none: 0,
  minimal: 1_024,
  low: 1_024,
  medium: 8_192,
  high: 24_576,
  xhigh: 24_576,
  max: 24_576
}

const levels: Readonly<Record<Effort, string>> = {
  none: "MINIMAL",
  minimal: "MINIMAL",
  low: "LOW",
  medium: "MEDIUM",
  high: "HIGH",
  xhigh: "HIGH",
  max: "HIGH"
}

const thinkingOf = (effort: Effort | undefined, model: string, policy: FieldPolicy): JsonObject | undefined => {
  if (effort === undefined) return undefined
  const generation = geminiGeneration(model)
  if (generation === undefined || generation < thinkingFrom) {
    if (effort !== "none") cannotCarry("reasoning_effort", policy)
    return undefined
  }
  const size = generation >= levelsFrom ? { thinkingLevel: levels[effort] } : { thinkingBudget: budgets[effort] }
  return effort === "none" ? size : { ...size, includeThoughts: true }
}

const linkTypes: Readonly<Record<string, string>> = {
  jpg: "image/jpeg",
  jpeg: "image/jpeg",
  png: "image/png",
  webp: "image/webp",
  heic: "image/heic",
  heif: "image/heif",
  gif: "image/gif"
}

/** A link's type, which Gemini wants to know, is what its path ends in. */
const linkType = (url: string): string | undefined => {
  if (!/^https:\/\//i.test(url) || !URL.canParse(url)) return undefined
  return linkTypes[/\.([a-z0-9]+)$/i.exec(new URL(url).pathname)?.[1]?.toLowerCase() ?? ""]
}

const partObject = (part: Part, provider: string): JsonObject => {
  switch (part.kind) {
    case "text":
      return { text: part.text }
    case "link": {
      const mimeType = linkType(part.url)
      if (mimeType === undefined) throw unsupportedParameter(part.param, provider)
      return { fileData: { mimeType, fileUri: part.url } }
    }
    default:
      return { inlineData: { mimeType: part.inline.mime, data: part.inline.data } }
  }
}

/** What Google documents for calls that no Gemini model has signed. */
const unsigned = "skip_thought_signature_validator"

const callObject = (call: ToolCall, signature: string | undefined): JsonObject => ({
  functionCall: { id: call.id, name: call.name, args: call.arguments },
  ...(signature === undefined ? {} : { thoughtSignature: signature })
})

const callsOf = (calls: ReadonlyArray<ToolCall>, model: string): ReadonlyArray<JsonObject> => {
  const signs = (geminiGeneration(model) ?? 0) >= levelsFrom
  // Only the first of parallel calls is signed.
  return calls.map((call, at) => callObject(call, call.signature ?? (signs && at === 0 ? unsigned : undefined)))
}

const resultObject = (turn: Extract<Turn, { role: "tool" }>, name: string, provider: string): JsonObject => {
  const text = plainText(turn.parts)
  const read = parseJson(text)
  const media = turn.parts.filter((part) => part.kind !== "text").map((part) => partObject(part, provider))
  return {
    functionResponse: {
      id: turn.callId,
      name,
      response: isJsonObject(read) ? read : { result: text },
      ...(media.length === 0 ? {} : { parts: media })
    }
  }
}

const contentsOf = (request: ChatRequest, model: string, provider: string): ReadonlyArray<JsonObject> => {
  const names = new Map<string, string>()
  const contents: Array<{ role: string; of: Turn["role"]; parts: Array<JsonObject> }> = []
  for (const turn of request.turns) {
    if (turn.role === "system") continue
    let parts: ReadonlyArray<JsonObject>
    if (turn.role === "tool") {
      const name = names.get(turn.callId)
      if (name === undefined) throw conversationFault(`${turn.param}.tool_call_id`, "answers no earlier tool call.")
      parts = [resultObject(turn, name, provider)]
    } else {
      const said = turn.parts.map((part) => partObject(part, provider))
      parts = turn.role === "assistant" ? [...said, ...callsOf(turn.calls, model)] : said
      if (turn.role === "assistant") for (const call of turn.calls) names.set(call.id, call.name)
    }
    if (parts.length === 0) continue
    const last = contents.at(-1)
    // The results of parallel calls are one content.
    if (last?.of === turn.role && turn.role === "tool") last.parts.push(...parts)
    else contents.push({ role: turn.role === "assistant" ? "model" : "user", of: turn.role, parts: [...parts] })
  }
  if (contents.length === 0) throw conversationFault("messages", "hold nothing but system messages.")
  return contents.map(({ parts, role }) => ({ role, parts }))
}

const toolsOf = (request: ChatRequest): ReadonlyArray<JsonObject> | undefined =>
  request.tools.length === 0
    ? undefined
    : [
        {
          functionDeclarations: request.tools.map((tool) => ({
            name: tool.name,
            ...(tool.description === undefined ? {} : { description: tool.description }),
            parametersJsonSchema: tool.schema
          }))
        }
      ]

const toolConfigOf = ({ toolChoice, tools }: ChatRequest): JsonObject | undefined => {
  if (toolChoice === undefined || tools.length === 0) return undefined
  if (typeof toolChoice === "object") {
    return { functionCallingConfig: { mode: "ANY", allowedFunctionNames: [toolChoice.name] } }
  }
  const modes = { auto: "AUTO", none: "NONE", required: "ANY" } as const
  return { functionCallingConfig: { mode: modes[toolChoice] } }
}

const given = (value: Json | undefined): Json | undefined => value ?? undefined

/** Throws an InvalidRequest for what cannot be carried. */
export const encodeGenerate = (call: UpstreamCall, target: WireTarget): JsonObject => {
  const { body } = call
  const { provider, upstreamModel: model } = target
  checkFields(body, carried, target)
  const request = readChat(call, provider)
  if (request.parallelCalls === false && request.tools.length > 0) cannotCarry("parallel_tool_calls", target)
  const system = systemParts(request)
  const generation = present({
    temperature: request.temperature,
    topP: request.topP,
    topK: given(body["top_k"]),
    candidateCount: body["n"] === 1 ? undefined : given(body["n"]),
    maxOutputTokens: request.maxTokens,
    stopSequences: request.stop.length === 0 ? undefined : request.stop,
    seed: given(body["seed"]),
    presencePenalty: given(body["presence_penalty"]),
    frequencyPenalty: given(body["frequency_penalty"]),
    responseMimeType: request.format === undefined ? undefined : "application/json",
    responseJsonSchema: request.format?.type === "json_schema" ? request.format.schema : undefined,
    thinkingConfig: thinkingOf(request.effort, model, target)
  })
  return present({
    systemInstruction: system.length === 0 ? undefined : { parts: system.map((part) => partObject(part, provider)) },
    contents: contentsOf(request, model, provider),
    tools: toolsOf(request),
    toolConfig: toolConfigOf(request),
    safetySettings: given(body["safety_settings"]),
    generationConfig: Object.keys(generation).length === 0 ? undefined : generation
  })
}

/** A native request, as it came: only what belongs into the path is taken out, and bare parts become a content. */
export const nativeGenerate = (body: JsonObject): JsonObject => {
  const { model: _model, stream: _stream, ...rest } = body
  const contents = listOf(rest["contents"])
  const bare = contents.length > 0 && contents.every((one) => isJsonObject(one) && objectOf(one)["parts"] === undefined)
  return bare ? { ...rest, contents: [{ role: "user", parts: contents }] } : rest
}

/** `batchEmbedContents`: one request for each text. */
export const encodeEmbeddings = (request: EmbeddingRequest, body: JsonObject, model: string): JsonObject => ({
  requests: request.texts.map((text) =>
    present({
      model: `models/${model}`,
      content: { parts: [{ text }] },
      outputDimensionality: request.dimensions,
      taskType: given(body["task_type"])
    })
  )
})
