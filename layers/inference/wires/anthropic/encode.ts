/** A chat request in the shape of the Messages API (platform.claude.com/docs/en/api/messages). */
import type { Json, JsonObject } from "#domain/json.ts"
import { followsSchemas, samplingOf, thinkingOf } from "#layers/inference/wires/anthropic/models.ts"
import { asJsonTool, cannotCarry, checkFields, usesJsonTool } from "#layers/inference/wires/chat/fields.ts"
import { alternatingMessages } from "#layers/inference/wires/chat/messages.ts"
import { conversationFault, type Part } from "#layers/inference/wires/chat/parts.ts"
import { type ChatRequest, readChat, systemParts, type Tool, type Turn } from "#layers/inference/wires/chat/request.ts"
import { unsupportedParameter } from "#layers/inference/wires/problems.ts"
import { objectOf, present } from "#layers/inference/wires/values.ts"
import type { UpstreamCall } from "#services/inference/ProviderRouter.ts"
import type { WireTarget } from "#services/inference/Wire.ts"

/** Fields beyond the common ones: Anthropic's own names among them are taken as they are. */
const carried = new Set(["thinking", "top_k", "service_tier", "output_config"])

const imageTypes = new Set(["image/jpeg", "image/png", "image/gif", "image/webp"])

const marked = (cache: Json | undefined): JsonObject => (cache === undefined ? {} : { cache_control: cache })

const blockOf = (part: Part, provider: string): JsonObject => {
  switch (part.kind) {
    case "text":
      return { type: "text", text: part.text, ...marked(part.cache) }
    case "image": {
      const { data, mime } = part.inline
      if (!imageTypes.has(mime)) throw conversationFault(part.param, "must be a JPEG, PNG, GIF or WebP image.")
      return { type: "image", source: { type: "base64", media_type: mime, data }, ...marked(part.cache) }
    }
    case "link":
      if (!/^https:\/\//i.test(part.url)) throw unsupportedParameter(part.param, provider)
      return { type: "image", source: { type: "url", url: part.url }, ...marked(part.cache) }
    case "file": {
      const { data, mime } = part.inline
      const title = part.name === undefined ? {} : { title: part.name }
      if (mime === "application/pdf") {
        const source = { type: "base64", media_type: mime, data }
        return { type: "document", source, ...title, ...marked(part.cache) }
      }
      if (mime !== "text/plain") throw unsupportedParameter(part.param, provider)
      const source = { type: "text", media_type: mime, data: Buffer.from(data, "base64").toString() }
      return { type: "document", source, ...title, ...marked(part.cache) }
    }
    default:
      throw unsupportedParameter(part.param, provider)
  }
}

/** Ids of tool calls come from any provider; Anthropic takes letters, digits, `_` and `-`. */
const callId = (id: string): string => id.replace(/[^A-Za-z0-9_-]/g, "_")

const thinkingTypes = new Set<Json | undefined>(["thinking", "redacted_thinking"])

const blocksOf = (turn: Turn, provider: string): ReadonlyArray<JsonObject> => {
  const said = turn.parts.map((part) => blockOf(part, provider))
  switch (turn.role) {
    case "system":
      return []
    case "user":
      return said
    case "assistant":
      return [
        ...turn.thinking.filter((block) => thinkingTypes.has(block["type"])),
        ...said,
        ...turn.calls.map((call) => ({
          type: "tool_use",
          id: callId(call.id),
          name: call.name,
          input: call.arguments
        }))
      ]
    case "tool":
      return [
        {
          type: "tool_result",
          tool_use_id: callId(turn.callId),
          ...(said.length === 0 ? {} : { content: said }),
          ...marked(turn.cache)
        }
      ]
  }
}

const toolObject = (tool: Tool, strict: boolean): JsonObject => ({
  name: tool.name,
  ...(tool.description === undefined ? {} : { description: tool.description }),
  input_schema: tool.schema["type"] === "object" ? tool.schema : { type: "object", ...tool.schema },
  ...(tool.strict && strict ? { strict: true } : {}),
  ...marked(tool.cache)
})

const toolChoiceOf = (request: ChatRequest): JsonObject | undefined => {
  const { parallelCalls, toolChoice, tools } = request
  if (tools.length === 0) return undefined
  const alone = parallelCalls === false ? { disable_parallel_tool_use: true } : {}
  switch (toolChoice) {
    case undefined:
      return parallelCalls === false ? { type: "auto", ...alone } : undefined
    case "auto":
      return { type: "auto", ...alone }
    case "required":
      return { type: "any", ...alone }
    case "none":
      return { type: "none" }
    default:
      return { type: "tool", name: toolChoice.name, ...alone }
  }
}

const serviceTier = (tier: Json | undefined, target: WireTarget): string | undefined => {
  if (tier === undefined || tier === null) return undefined
  if (tier === "auto") return "auto"
  if (tier === "default" || tier === "standard_only") return "standard_only"
  cannotCarry("service_tier", target)
  return undefined
}

export interface EncodedMessages {
  readonly body: JsonObject
  /** Whether the answer comes as arguments of the JSON tool. */
  readonly jsonTool: boolean
}

/** Throws an InvalidRequest for what cannot be carried. */
export const encodeMessages = (call: UpstreamCall, target: WireTarget): EncodedMessages => {
  const { body } = call
  const { provider, upstreamModel: model } = target
  checkFields(body, carried, target)
  const asked = readChat(call, provider)
  const structured = asked.format?.type === "json_schema" && followsSchemas(model)
  const request = structured ? asked : asJsonTool(asked, target)
  const maxTokens = request.maxTokens ?? target.maxOutputTokens
  const own = body["thinking"] ?? undefined
  const chosen = own === undefined ? thinkingOf(request, model, maxTokens, target) : { thinking: own }
  const thinks = objectOf(chosen.thinking)["type"] === "enabled" || objectOf(chosen.thinking)["type"] === "adaptive"
  const { temperature, topP } = samplingOf(request, model, thinks, target)
  const system = systemParts(request).map((part) => blockOf(part, provider))
  const effort = "effort" in chosen ? chosen.effort : undefined
  const outputConfig = present({
    ...objectOf(body["output_config"]),
    effort: effort ?? objectOf(body["output_config"])["effort"],
    format: request.format?.type === "json_schema" ? { type: "json_schema", schema: request.format.schema } : undefined
  })
  return {
    jsonTool: usesJsonTool(request),
    body: present({
      model,
      max_tokens: maxTokens,
      system: system.length === 0 ? undefined : system,
      messages: alternatingMessages(request, (turn) => blocksOf(turn, provider)),
      tools:
        request.tools.length === 0 ? undefined : request.tools.map((tool) => toolObject(tool, followsSchemas(model))),
      tool_choice: toolChoiceOf(request),
      stop_sequences: request.stop.length === 0 ? undefined : request.stop,
      temperature,
      top_p: topP,
      top_k: body["top_k"] ?? undefined,
      thinking: chosen.thinking,
      output_config: Object.keys(outputConfig).length === 0 ? undefined : outputConfig,
      service_tier: serviceTier(body["service_tier"], target),
      metadata: request.user === undefined ? undefined : { user_id: request.user.slice(0, 256) },
      stream: call.stream ? true : undefined
    })
  }
}
