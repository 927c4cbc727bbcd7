/** The content of chat messages (model-api.md, "ChatCompletionRequest"), read into one form for every wire. */
import { InvalidRequest } from "#domain/errors.ts"
import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"
import { listOf, objectOf, stringOf } from "#layers/inference/wires/values.ts"

/** Bytes that came in the request, base64. */
export interface InlineData {
  readonly mime: string
  readonly data: string
}

/** One piece of a message. `param` is its JSON path; `cache` a prompt-caching mark, `cache_control`, on it. */
export type Part =
  | { readonly kind: "text"; readonly text: string; readonly param: string; readonly cache: Json | undefined }
  | { readonly kind: "image"; readonly inline: InlineData; readonly param: string; readonly cache: Json | undefined }
  | { readonly kind: "link"; readonly url: string; readonly param: string; readonly cache: Json | undefined }
  | { readonly kind: "audio"; readonly inline: InlineData; readonly param: string; readonly cache: Json | undefined }
  | {
      readonly kind: "file"
      readonly inline: InlineData
      readonly name: string | undefined
      readonly param: string
      readonly cache: Json | undefined
    }

const mostParts = 4_096

/** The conversation is at fault, not a parameter. */
export const conversationFault = (param: string, message: string): InvalidRequest =>
  new InvalidRequest({ code: "invalid_conversation", message: `'${param}' ${message}`, param })

const dataUrl = /^data:([a-z0-9.+-]+\/[a-z0-9.+-]+)(?:;[a-z0-9=._-]+)*;base64,/i

const inlineOf = (url: string): InlineData | undefined => {
  const head = dataUrl.exec(url.slice(0, 256))
  return head?.[1] === undefined ? undefined : { mime: head[1].toLowerCase(), data: url.slice(head[0].length) }
}

const audioTypes: Readonly<Record<string, string>> = {
  wav: "audio/wav",
  mp3: "audio/mp3",
  flac: "audio/flac",
  ogg: "audio/ogg",
  aac: "audio/aac",
  aiff: "audio/aiff"
}

const imagePart = (part: JsonObject, param: string): Part => {
  const holder = part["image_url"]
  const url = typeof holder === "string" ? holder : stringOf(objectOf(holder)["url"])
  const cache = part["cache_control"]
  if (url === undefined) throw conversationFault(`${param}.image_url.url`, "must be a URL or a data URL.")
  if (!/^data:/i.test(url)) return { kind: "link", url, param: `${param}.image_url.url`, cache }
  const inline = inlineOf(url)
  if (inline === undefined) throw conversationFault(`${param}.image_url.url`, "is no base64 data URL.")
  return { kind: "image", inline, param: `${param}.image_url.url`, cache }
}

const partOf = (part: Json, param: string): Part => {
  if (!isJsonObject(part)) throw conversationFault(param, "must be an object.")
  const cache = part["cache_control"]
  switch (part["type"]) {
    case "text":
    case "refusal": {
      const text = stringOf(part["text"] ?? part["refusal"])
      if (text === undefined) throw conversationFault(`${param}.text`, "must be a text.")
      return { kind: "text", text, param, cache }
    }
    case "image_url":
      return imagePart(part, param)
    case "input_audio": {
      const audio = objectOf(part["input_audio"])
      const mime = audioTypes[stringOf(audio["format"]) ?? ""]
      const data = stringOf(audio["data"])
      if (mime === undefined) throw conversationFault(`${param}.input_audio.format`, "is no known audio format.")
      if (data === undefined) throw conversationFault(`${param}.input_audio.data`, "must be base64.")
      return { kind: "audio", inline: { mime, data }, param, cache }
    }
    case "file": {
      const file = objectOf(part["file"])
      const inline = inlineOf(stringOf(file["file_data"]) ?? "")
      if (inline === undefined) throw conversationFault(`${param}.file.file_data`, "must be a base64 data URL.")
      return { kind: "file", inline, name: stringOf(file["filename"]), param, cache }
    }
    default:
      throw new InvalidRequest({
        code: "unsupported_parameter",
        message: `'${param}.type' is no content type that this model takes.`,
        param: `${param}.type`
      })
  }
}

/** Throws an InvalidRequest that names the part at fault. Empty texts are left out: no upstream takes them. */
export const partsOf = (content: Json | undefined, param: string): ReadonlyArray<Part> => {
  if (content === undefined || content === null) return []
  if (typeof content === "string") {
    return content === "" ? [] : [{ kind: "text", text: content, param, cache: undefined }]
  }
  const parts = listOf(content)
  if (!Array.isArray(content)) throw conversationFault(param, "must be a text or a list of parts.")
  if (parts.length > mostParts) throw conversationFault(param, `has more than ${mostParts} parts.`)
  return parts.map((part, at) => partOf(part, `${param}.${at}`)).filter((one) => one.kind !== "text" || one.text !== "")
}

/** The texts of some parts, joined. */
export const plainText = (parts: ReadonlyArray<Part>, separator = ""): string =>
  parts.map((part) => (part.kind === "text" ? part.text : "")).join(separator)
