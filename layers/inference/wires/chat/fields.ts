/** Which fields of a request a wire carries, and what becomes of the others (decisions.md, section 7.3). */
import { InvalidRequest } from "#domain/errors.ts"
import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"
import type { ChatRequest, Tool } from "#layers/inference/wires/chat/request.ts"
import { unsupportedParameter } from "#layers/inference/wires/problems.ts"
import type { WireTarget } from "#services/inference/Wire.ts"

/** Carried by every translating wire, or served by the gateway itself. */
const everywhere = new Set([
  "model",
  "messages",
  "prompt",
  "stream",
  "stream_options",
  "max_tokens",
  "max_completion_tokens",
  "temperature",
  "top_p",
  "stop",
  "tools",
  "tool_choice",
  "parallel_tool_calls",
  "response_format",
  "reasoning_effort",
  "user",
  "safety_identifier",
  "metadata",
  "prompt_cache_key"
])

const isEmpty = (value: Json): boolean =>
  Array.isArray(value) ? value.length === 0 : isJsonObject(value) && Object.keys(value).length === 0

/** Values that ask for what an upstream does anyway. */
const neutral: Readonly<Record<string, (value: Json) => boolean>> = {
  n: (value) => value === 1,
  presence_penalty: (value) => value === 0,
  frequency_penalty: (value) => value === 0,
  logit_bias: isEmpty,
  logprobs: (value) => value === false,
  top_logprobs: (value) => value === 0,
  store: (value) => value === false,
  service_tier: (value) => value === "auto" || value === "default",
  modalities: (value) => Array.isArray(value) && value.length === 1 && (value as ReadonlyArray<Json>)[0] === "text",
  functions: isEmpty,
  echo: (value) => value === false,
  best_of: (value) => value === 1,
  suffix: (value) => value === ""
}

/** The settings of a deployment that decide about fields. */
export type FieldPolicy = Pick<WireTarget, "provider" | "dropParams">

/** Throws `unsupported_parameter`, unless the model drops what it cannot carry. */
export const cannotCarry = (param: string, policy: FieldPolicy): void => {
  if (!policy.dropParams) throw unsupportedParameter(param, policy.provider)
}

/** Throws for the first field that is neither carried nor neutral. `null` asks for nothing. */
export const checkFields = (body: JsonObject, carried: ReadonlySet<string>, policy: FieldPolicy): void => {
  if (policy.dropParams) return
  for (const name of Object.keys(body)) {
    const value = body[name]
    if (value === undefined || value === null || everywhere.has(name) || carried.has(name)) continue
    if (neutral[name]?.(value) !== true) throw unsupportedParameter(name.slice(0, 200), policy.provider)
  }
}

/** Runs an encoder; an InvalidRequest that it throws is its result. */
export const refusable = <A>(encode: () => A): A | InvalidRequest => {
  try {
    return encode()
  } catch (error) {
    if (error instanceof InvalidRequest) return error
    throw error
  }
}

/** The tool through which an upstream without a JSON mode is made to answer JSON. */
export const jsonToolName = "json_answer"

/**
 * A request for JSON as a forced call of one tool, whose arguments are the answer. It leaves no room for the client's own
 * tools, nor for reasoning, which such upstreams do not combine with a forced call.
 */
export const asJsonTool = (request: ChatRequest, policy: FieldPolicy): ChatRequest => {
  const { format } = request
  if (format === undefined) return request
  const reasons = request.effort !== undefined && request.effort !== "none"
  if (reasons || (request.tools.length > 0 && request.toolChoice !== "none")) {
    cannotCarry("response_format", policy)
    return { ...request, format: undefined }
  }
  const tool: Tool = {
    name: jsonToolName,
    description: "Gives the whole answer, as a JSON object.",
    schema: format.type === "json_schema" ? format.schema : { type: "object", additionalProperties: true },
    strict: false,
    cache: undefined
  }
  return { ...request, format: undefined, tools: [tool], toolChoice: { name: jsonToolName }, parallelCalls: undefined }
}

/** Whether the request was rewritten by {@link asJsonTool}. */
export const usesJsonTool = (request: ChatRequest): boolean => request.tools[0]?.name === jsonToolName
