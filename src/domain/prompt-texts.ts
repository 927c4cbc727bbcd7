import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"

/** The texts of a body in their order, and the body with other texts in the same places. */
export interface BodyTexts {
  readonly texts: ReadonlyArray<string>
  /** `texts` must have the length of the texts found; the body itself stays as it is. */
  readonly replaced: (texts: ReadonlyArray<string>) => JsonObject
}

/** Where a text stands, from there upwards: siblings share what is above them. */
interface Path {
  readonly parent: Path | undefined
  readonly step: string | number
  /** The root's is 1. */
  readonly depth: number
}

const below = (parent: Path, step: string | number): Path => ({ parent, step, depth: parent.depth + 1 })

const rootOf = (step: string): Path => ({ parent: undefined, step, depth: 1 })

/** What a caller says to a model, in every request shape that the gateway takes. */
const promptRoots = [
  "system",
  "instructions",
  "systemInstruction",
  "system_instruction",
  "messages",
  "additional_messages",
  "prompt",
  "suffix",
  "input",
  "contents",
  "query",
  "documents",
  "negative_prompt"
]

/** What defines tools and answer formats: only their descriptions are language. */
const definitionRoots = ["tools", "functions", "response_format", "text"]

/** What a model says, in every answer shape. */
const answerRoots = ["choices", "output", "content", "candidates", "text", "segments", "words"]

/**
 * Fields that carry no language: names of things, and media. Everything else is a text, so that a field which a
 * provider adds tomorrow is guarded today.
 */
const notText = new Set([
  "type",
  "role",
  "id",
  "name",
  "model",
  "status",
  "object",
  "index",
  "tool_call_id",
  "tool_use_id",
  "call_id",
  "item_id",
  "file_id",
  "finish_reason",
  "stop_reason",
  "finishReason",
  "image_url",
  "url",
  "uri",
  "fileUri",
  "data",
  "file_data",
  "b64_json",
  "media_type",
  "mime_type",
  "mimeType",
  "inlineData",
  "inline_data",
  "fileData",
  "input_audio",
  "detail",
  "format",
  "cache_control",
  "signature",
  "thoughtSignature",
  "encrypted_content",
  "logprobs"
])

/** Arguments and results of tools: free-form, so every string in them is a text. */
const freeForm = new Set(["arguments", "input", "args", "response", "result"])

const maxDepth = 64

const collect = (value: Json | undefined, path: Path, all: boolean, add: (path: Path, text: string) => void): void => {
  if (typeof value === "string") {
    if (value !== "") add(path, value)
    return
  }
  if (typeof value !== "object" || value === null || path.depth > maxDepth) return
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) collect(value[i], below(path, i), all, add)
    return
  }
  for (const key of Object.keys(value)) {
    const child = (value as JsonObject)[key]!
    if (!all && notText.has(key)) continue
    collect(child, below(path, key), all || (path.depth > 1 && freeForm.has(key)), add)
  }
}

const collectDescriptions = (value: Json | undefined, path: Path, add: (path: Path, text: string) => void): void => {
  if (typeof value !== "object" || value === null || path.depth > maxDepth) return
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) collectDescriptions(value[i], below(path, i), add)
    return
  }
  for (const key of Object.keys(value)) {
    const child = (value as JsonObject)[key]!
    if (key === "description" && typeof child === "string") add(below(path, key), child)
    else collectDescriptions(child, below(path, key), add)
  }
}

const stepsOf = (path: Path): ReadonlyArray<string | number> => {
  const steps: Array<string | number> = []
  for (let at: Path | undefined = path; at !== undefined; at = at.parent) steps.push(at.step)
  return steps.toReversed()
}

const replaceAt = (value: Json, path: ReadonlyArray<string | number>, at: number, text: string): Json => {
  if (at === path.length) return text
  const step = path[at]!
  if (Array.isArray(value)) {
    const copy = [...value]
    copy[step as number] = replaceAt(copy[step as number]!, path, at + 1, text)
    return copy
  }
  const object = value as JsonObject
  return { ...object, [step]: replaceAt(object[step]!, path, at + 1, text) }
}

const textsOf = (body: JsonObject, found: ReadonlyArray<readonly [Path, string]>): BodyTexts => ({
  texts: found.map(([, text]) => text),
  replaced: (texts) => {
    let result: Json = body
    for (let i = 0; i < found.length; i++) {
      const [path, text] = found[i]!
      const next = texts[i]
      if (next !== undefined && next !== text) result = replaceAt(result, stepsOf(path), 0, next)
    }
    return isJsonObject(result) ? result : body
  }
})

/**
 * The texts of a model request that guardrails read: system prompts, messages, tool arguments and results, and the
 * descriptions of tools, in chat, completion, responses, messages, generateContent, embedding and rerank shapes. Media,
 * ids and names are left out. Nesting below 64 levels is not read.
 */
export const promptTexts = (body: JsonObject): BodyTexts => {
  const found: Array<readonly [Path, string]> = []
  const add = (path: Path, text: string) => void found.push([path, text])
  for (const root of promptRoots) if (body[root] !== undefined) collect(body[root], rootOf(root), false, add)
  for (const root of definitionRoots) {
    if (body[root] !== undefined) collectDescriptions(body[root], rootOf(root), add)
  }
  return textsOf(body, found)
}

/** The texts of a model's answer that post guardrails read, in chat, completion, responses, messages and generateContent shapes. */
export const answerTexts = (body: JsonObject): BodyTexts => {
  const found: Array<readonly [Path, string]> = []
  for (const root of answerRoots)
    collect(body[root], rootOf(root), false, (path, text) => void found.push([path, text]))
  return textsOf(body, found)
}
