import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"
import { promptTexts } from "#domain/prompt-texts.ts"

/**
 * Never less than the o200k_base tokens of a text: its UTF-8 bytes, because every token stands for at least one byte. Native
 * speed (0.06 µs per KB). Text such as `a1a1` or a rare script really does take a token per byte, and a closer bound
 * would have to scan, at forty times the cost.
 */
export const tokenUpperBound = (text: string): number => Buffer.byteLength(text)

/** Framing of one message in a chat prompt, as OpenAI documents it: three tokens, and one where it has a name. */
const tokensPerMessage = 4
/** The primed start of the answer. */
const tokensPerAnswer = 3
/** Low detail is one tile; high detail at most eight tiles of 170 beside the base of 85. */
const lowDetailImageTokens = 85
const imageTokens = 1445
/** Ten tokens a second; the smallest usual encoding has 8 kB a second. */
const audioBytesPerToken = 800
/** A document counts by its size, as if it were plain text. */
const fileBytesPerToken = 4

/** A request as a tokenizer sees it: texts to count, and tokens that are known without counting. */
export interface PromptParts {
  readonly texts: ReadonlyArray<string>
  readonly fixedTokens: number
}

const maxDepth = 32

const base64Bytes = (value: Json | undefined): number =>
  typeof value === "string" ? Math.ceil(value.length * 0.75) : 0

const mediaTokens = (part: JsonObject): number => {
  switch (part["type"]) {
    case "image_url": {
      const image = part["image_url"]
      return isJsonObject(image) && image["detail"] === "low" ? lowDetailImageTokens : imageTokens
    }
    case "input_image":
      return part["detail"] === "low" ? lowDetailImageTokens : imageTokens
    case "image":
      return imageTokens
    case "input_audio": {
      const audio = part["input_audio"]
      return isJsonObject(audio) ? Math.ceil(base64Bytes(audio["data"]) / audioBytesPerToken) : 0
    }
    case "file":
    case "input_file": {
      const file = isJsonObject(part["file"]) ? part["file"] : part
      return Math.ceil(base64Bytes(file["file_data"]) / fileBytesPerToken)
    }
    case "document": {
      const source = part["source"]
      return isJsonObject(source) ? Math.ceil(base64Bytes(source["data"]) / fileBytesPerToken) : 0
    }
    default: {
      const inline = part["inlineData"] ?? part["inline_data"]
      if (!isJsonObject(inline)) return 0
      const mime = inline["mimeType"] ?? inline["mime_type"]
      if (typeof mime === "string" && mime.startsWith("image/")) return imageTokens
      return Math.ceil(
        base64Bytes(inline["data"]) /
          (typeof mime === "string" && mime.startsWith("audio/") ? audioBytesPerToken : fileBytesPerToken)
      )
    }
  }
}

const mediaIn = (value: Json | undefined, depth: number): number => {
  if (typeof value !== "object" || value === null || depth > maxDepth) return 0
  let tokens = 0
  if (Array.isArray(value)) {
    for (const child of value) tokens += mediaIn(child, depth + 1)
    return tokens
  }
  const own = mediaTokens(value as JsonObject)
  if (own > 0) return own
  for (const child of Object.values(value)) {
    if (typeof child === "object" && child !== null) tokens += mediaIn(child, depth + 1)
  }
  return tokens
}

/** Names of callers and tools: short, and outside what guardrails read. */
const namesIn = (messages: ReadonlyArray<Json>): Array<string> => {
  const names: Array<string> = []
  for (const message of messages) {
    if (!isJsonObject(message)) continue
    if (typeof message["name"] === "string") names.push(message["name"])
    const calls = message["tool_calls"]
    if (!Array.isArray(calls)) continue
    for (const call of calls) {
      const called: Json | undefined = isJsonObject(call) ? call["function"] : undefined
      if (isJsonObject(called) && typeof called["name"] === "string") names.push(called["name"])
    }
  }
  return names
}

const arrayOf = (value: Json | undefined): ReadonlyArray<Json> => (Array.isArray(value) ? value : [])

/** Token ids given instead of text (`prompt: [1, 2]`, `input: [[1, 2]]`). */
const givenTokens = (value: Json | undefined): number => {
  let count = 0
  for (const item of arrayOf(value)) {
    if (typeof item === "number") count++
    else if (Array.isArray(item)) count += item.length
  }
  return count
}

/**
 * What of a model request costs prompt tokens: its texts, the JSON of its tools and answer format, the framing of
 * its messages, and its media as flat estimates (an image 1445 tokens, 85 at low detail).
 */
export const promptParts = (body: JsonObject): PromptParts => {
  const { functions, response_format: format, tools, ...rest } = body
  const messages = [
    ...arrayOf(body["messages"]),
    ...arrayOf(body["additional_messages"]),
    ...arrayOf(body["contents"]),
    ...arrayOf(body["input"]).filter(isJsonObject)
  ]
  const texts = [...promptTexts(rest).texts, ...namesIn(messages)]
  for (const definition of [tools, functions, format]) {
    if (definition !== undefined && definition !== null) texts.push(JSON.stringify(definition))
  }
  return {
    texts,
    fixedTokens:
      messages.length * tokensPerMessage +
      tokensPerAnswer +
      mediaIn(body["messages"], 0) +
      mediaIn(body["contents"], 0) +
      mediaIn(body["input"], 0) +
      givenTokens(body["prompt"]) +
      givenTokens(body["input"])
  }
}

/** An upper bound of a request's prompt tokens (its media as flat estimates), for a reservation without a tokenizer. */
export const promptTokenUpperBound = (body: JsonObject): number => {
  const parts = promptParts(body)
  let bound = parts.fixedTokens
  for (const text of parts.texts) bound += tokenUpperBound(text)
  return bound
}
