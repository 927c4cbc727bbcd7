/** Chat requests in the shape of Bedrock's Converse (docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html). */
import type { Json, JsonObject } from "#domain/json.ts"
import { followsSchemas, samplingOf, thinkingOf } from "#layers/inference/wires/anthropic/models.ts"
import { asJsonTool, cannotCarry, checkFields, usesJsonTool } from "#layers/inference/wires/chat/fields.ts"
import { alternatingMessages } from "#layers/inference/wires/chat/messages.ts"
import type { InlineData, Part } from "#layers/inference/wires/chat/parts.ts"
import { type ChatRequest, readChat, systemParts, type Turn } from "#layers/inference/wires/chat/request.ts"
import { unsupportedParameter } from "#layers/inference/wires/problems.ts"
import { objectOf, present, stringOf } from "#layers/inference/wires/values.ts"
import type { UpstreamCall } from "#services/inference/ProviderRouter.ts"
import type { WireTarget } from "#services/inference/Wire.ts"

export const isClaude = (model: string): boolean => /\bclaude\b/i.test(model)

const imageFormats: Readonly<Record<string, string>> = {
  "image/png": "png",
  "image/jpeg": "jpeg",
  "image/gif": "gif",
  "image/webp": "webp"
}

const documentFormats: Readonly<Record<string, string>> = {
  "application/pdf": "pdf",
  "text/csv": "csv",
  "text/html": "html",
  "text/plain": "txt",
  "text/markdown": "md",
  "application/msword": "doc",
  "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
  "application/vnd.ms-excel": "xls",
  "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx"
}

/** Converse takes letters, digits, single spaces and a few signs, and no dot. */
const documentName = (name: string | undefined): string =>
  (name ?? "")
    .replace(/[^A-Za-z0-9()[\]-]+/g, " ")
    .trim()
    .slice(0, 200) || "document"

const formatOf = (formats: Readonly<Record<string, string>>, inline: InlineData, param: string, provider: string) => {
  const format = formats[inline.mime]
  if (format === undefined) throw unsupportedParameter(param, provider)
  return format
}

const blockOf = (part: Part, provider: string): JsonObject => {
  switch (part.kind) {
    case "text":
      return { text: part.text }
    case "image": {
      const format = formatOf(imageFormats, part.inline, part.param, provider)
      return { image: { format, source: { bytes: part.inline.data } } }
    }
    case "file": {
      const format = formatOf(documentFormats, part.inline, part.param, provider)
      return { document: { format, name: documentName(part.name), source: { bytes: part.inline.data } } }
    }
    case "link": {
      // Bedrock fetches nothing from the web, but knows its own account's buckets.
      const format = imageFormats[`image/${/\.([a-z]+)$/.exec(part.url)?.[1]?.replace("jpg", "jpeg") ?? ""}`]
      if (!part.url.startsWith("s3://") || format === undefined) throw unsupportedParameter(part.param, provider)
      return { image: { format, source: { s3Location: { uri: part.url } } } }
    }
    default:
      throw unsupportedParameter(part.param, provider)
  }
}

/** A prompt-caching mark stands behind what it closes. */
const cachePoint = (cache: Json | undefined): ReadonlyArray<JsonObject> => {
  if (cache === undefined || cache === null) return []
  const ttl = stringOf(objectOf(cache)["ttl"])
  return [{ cachePoint: { type: "default", ...(ttl === undefined ? {} : { ttl }) } }]
}

const blocksFor = (parts: ReadonlyArray<Part>, provider: string): ReadonlyArray<JsonObject> =>
  parts.flatMap((part) => [blockOf(part, provider), ...cachePoint(part.cache)])

const thinkingBlock = (block: JsonObject): ReadonlyArray<JsonObject> => {
  if (block["type"] === "redacted_thinking") return [{ reasoningContent: { redactedContent: block["data"] ?? "" } }]
  const text = stringOf(block["thinking"])
  const signature = stringOf(block["signature"])
  return text === undefined || signature === undefined
    ? []
    : [{ reasoningContent: { reasoningText: { text, signature } } }]
}

const callId = (id: string): string => id.replace(/[^A-Za-z0-9_-]/g, "_").slice(0, 64)

const blocksOf = (turn: Turn, provider: string): ReadonlyArray<JsonObject> => {
  const said = blocksFor(turn.parts, provider)
  switch (turn.role) {
    case "system":
      return []
    case "user":
      return said
    case "assistant":
      return [
        ...turn.thinking.flatMap(thinkingBlock),
        ...said,
        ...turn.calls.map((call) => ({
          toolUse: { toolUseId: callId(call.id), name: call.name, input: call.arguments }
        }))
      ]
    case "tool": {
      const content = turn.parts.map((part) => blockOf(part, provider))
      return [
        { toolResult: { toolUseId: callId(turn.callId), content: content.length === 0 ? [{ text: " " }] : content } },
        ...cachePoint(turn.cache)
      ]
    }
  }
}

const toolConfigOf = (request: ChatRequest, target: WireTarget): JsonObject | undefined => {
  const { toolChoice, tools } = request
  if (tools.length === 0) return undefined
  if (toolChoice === "none") {
    // Converse cannot forbid tools; they can only be left out, as long as nothing refers to them.
    const used = request.turns.some(
      (turn) => turn.role === "tool" || (turn.role === "assistant" && turn.calls.length > 0)
    )
    if (!used) return undefined
    cannotCarry("tool_choice", target)
  }
  const choice =
    typeof toolChoice === "object"
      ? { tool: { name: toolChoice.name } }
      : toolChoice === "required"
        ? { any: {} }
        : toolChoice === "auto"
          ? { auto: {} }
          : undefined
  return present({
    tools: tools.flatMap((tool) => [
      {
        toolSpec: present({
          name: tool.name,
          description: tool.description,
          inputSchema: { json: tool.schema["type"] === "object" ? tool.schema : { type: "object", ...tool.schema } },
          strict:
            tool.strict && (!isClaude(target.upstreamModel) || followsSchemas(target.upstreamModel)) ? true : undefined
        })
      },
      ...cachePoint(tool.cache)
    ]),
    toolChoice: choice
  })
}

const threeEfforts: Readonly<Record<string, string>> = { minimal: "low", low: "low", medium: "medium" }

/** Reasoning is a matter of each maker's own fields. */
const reasoningFields = (request: ChatRequest, maxTokens: number, target: WireTarget): JsonObject => {
  const { effort } = request
  const { upstreamModel: model } = target
  if (effort === undefined || effort === "none") return {}
  if (isClaude(model)) {
    const chosen = thinkingOf(request, model, maxTokens, target)
    return present({
      thinking: chosen.thinking,
      output_config: chosen.effort === undefined ? undefined : { effort: chosen.effort }
    })
  }
  const size = threeEfforts[effort] ?? "high"
  if (/gpt-oss/i.test(model)) return { reasoning_effort: size }
  if (/nova-2/i.test(model)) return { reasoningConfig: { type: "enabled", maxReasoningEffort: size } }
  cannotCarry("reasoning_effort", target)
  return {}
}

const claudeFields = new Set(["top_k", "thinking"])
const noFields: ReadonlySet<string> = new Set()

export interface EncodedConverse {
  readonly body: JsonObject
  /** Whether the answer comes as arguments of the JSON tool. */
  readonly jsonTool: boolean
}

/** Throws an InvalidRequest for what cannot be carried. */
export const encodeConverse = (call: UpstreamCall, target: WireTarget): EncodedConverse => {
  const { body } = call
  const { provider, upstreamModel: model } = target
  const claude = isClaude(model)
  checkFields(body, claude ? claudeFields : noFields, target)
  const asked = readChat(call, provider)
  const structured = asked.format?.type === "json_schema" && (!claude || followsSchemas(model))
  const request = structured ? asked : asJsonTool(asked, target)
  if (request.parallelCalls === false && request.tools.length > 0) cannotCarry("parallel_tool_calls", target)
  const most = request.maxTokens ?? target.maxOutputTokens
  const thinking = claude ? (body["thinking"] ?? undefined) : undefined
  const more: JsonObject = {
    ...(thinking === undefined ? reasoningFields(request, most, target) : { thinking }),
    ...(claude && typeof body["top_k"] === "number" ? { top_k: body["top_k"] } : {})
  }
  const thinks = more["thinking"] !== undefined && objectOf(more["thinking"])["type"] !== "disabled"
  const { temperature, topP } = claude ? samplingOf(request, model, thinks, target) : request
  const inference = present({
    maxTokens: request.maxTokens ?? (thinks ? most : undefined),
    temperature,
    topP,
    stopSequences: request.stop.length === 0 ? undefined : request.stop
  })
  const system = blocksFor(systemParts(request), provider)
  const { format } = request
  return {
    jsonTool: usesJsonTool(request),
    body: present({
      messages: alternatingMessages(request, (turn) => blocksOf(turn, provider)),
      system: system.length === 0 ? undefined : system,
      inferenceConfig: Object.keys(inference).length === 0 ? undefined : inference,
      toolConfig: toolConfigOf(request, target),
      additionalModelRequestFields: Object.keys(more).length === 0 ? undefined : more,
      outputConfig:
        format?.type === "json_schema"
          ? {
              textFormat: {
                type: "json_schema",
                structure: {
                  jsonSchema: present({
                    schema: JSON.stringify(format.schema),
                    name: format.name,
                    description: format.description
                  })
                }
              }
            }
          : undefined
    })
  }
}
