/** Images, audio, moderation and rerank on OpenAI-shaped upstreams; rerank is what Cohere, Jina and Voyage have in common. */
import { audioSeconds } from "#domain/audio.ts"
import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"
import type { ModelOperation } from "#domain/operations.ts"
import { type Usage, usageOf } from "#domain/usage.ts"
import { fileOfDataUrl, multipartBody } from "#layers/inference/wires/multipart.ts"
import { usageOfOpenAi } from "#layers/inference/wires/openai-usage.ts"
import { headerText, malformedAnswer } from "#layers/inference/wires/problems.ts"
import { countOf, objectOf, objectsOf, parseJson, stringOf } from "#layers/inference/wires/values.ts"
import type { UpstreamCall } from "#services/inference/ProviderRouter.ts"
import type { DecodedAnswer, StreamedBody, UpstreamProblem, WireResponse } from "#services/inference/Wire.ts"

/** The operations that this file reads and writes, and where each lives below the base. */
export const mediaPaths = {
  image: "/images/generations",
  image_edit: "/images/edits",
  speech: "/audio/speech",
  transcription: "/audio/transcriptions",
  moderation: "/moderations",
  rerank: "/rerank"
} as const satisfies Partial<Record<ModelOperation, string>>

export type MediaOperation = keyof typeof mediaPaths

export const isMediaOperation = (operation: ModelOperation): operation is MediaOperation =>
  Object.hasOwn(mediaPaths, operation)

/** A body as JSON text, or as a form with files. */
export type MediaBody =
  | { readonly contentType: "application/json"; readonly body: string }
  | { readonly contentType: string; readonly body: ""; readonly upload: StreamedBody }

const imageFields = ["image", "image[]", "mask"]

/**
 * `/images/edits` in JSON: where the images are data URLs they become the form that OpenAI documents, anything else goes
 * on as it came.
 */
const editOf = (body: JsonObject): MediaBody => {
  const files = imageFields.flatMap((field) => {
    const value = body[field]
    const list = Array.isArray(value) ? (value as ReadonlyArray<Json>) : value === undefined ? [] : [value]
    const name = field === "image" && list.length > 1 ? "image[]" : field
    return list.map((one, at) => fileOfDataUrl(name, one, at))
  })
  const found = files.filter((file) => file !== undefined)
  if (found.length === 0 || found.length < files.length) {
    return { contentType: "application/json", body: JSON.stringify(body) }
  }
  const fields = Object.fromEntries(Object.entries(body).filter(([name]) => !imageFields.includes(name)))
  return { ...multipartBody(fields, found), body: "" }
}

/** The body of a media call for the model of that name. */
export const mediaBody = (call: UpstreamCall, model: string): MediaBody => {
  const body = { ...call.body, model }
  if (call.files !== undefined) return { ...multipartBody(body, call.files), body: "" }
  if (call.operation === "image_edit") return editOf(body)
  return { contentType: "application/json", body: JSON.stringify(body) }
}

/** `Content-Type` by `response_format` (model-api.md, "Images, audio, moderation, rerank"). */
const speechTypes: Readonly<Record<string, string>> = {
  mp3: "audio/mpeg",
  opus: "audio/opus",
  aac: "audio/aac",
  flac: "audio/flac",
  wav: "audio/wav",
  pcm: "audio/pcm"
}

/** 24 kHz, 16 bits, one channel. */
const pcmBytesPerSecond = 48_000
/** What speech is taken to fill where its format does not say, in bytes a second: 32 kbit/s. */
const usualAudio = 4_000

const speech = (call: UpstreamCall, { body, headers }: WireResponse): DecodedAnswer => {
  const format = stringOf(call.body["response_format"]) ?? "mp3"
  const upstream = headerText(headers, "content-type") ?? ""
  const pcm = format === "pcm" ? body.length / pcmBytesPerSecond : undefined
  const seconds = audioSeconds(body, body.length) ?? pcm ?? body.length / usualAudio
  return {
    contentType: upstream.startsWith("text/event-stream") ? upstream : (speechTypes[format] ?? "audio/mpeg"),
    body,
    usage: usageOf({ seconds, estimated: true }),
    texts: () => []
  }
}

/** No upstream's number of seconds is believed beyond this: ten days. */
const longestAudio = 864_000

/** Beyond this an answer holds whole images, and only what is counted is looked for. */
const largeBody = 256 * 1024

const occurrences = (body: Buffer, text: string): number => {
  let count = 0
  for (let at = body.indexOf(text); at !== -1; at = body.indexOf(text, at + text.length)) count += 1
  return count
}

const usageAtEnd = (body: Buffer): Usage | undefined => {
  const tail = body.subarray(Math.max(0, body.length - 2048)).toString("latin1")
  const at = tail.lastIndexOf('"usage"')
  const match = at === -1 ? null : /^"usage"\s*:\s*(\{[\s\S]*\})\s*\}\s*$/.exec(tail.slice(at))
  return match?.[1] === undefined ? undefined : usageOfOpenAi(parseJson(match[1]))
}

const withImages = (tokens: Usage | undefined, images: number): Usage =>
  tokens === undefined ? usageOf({ images, estimated: true }) : { ...tokens, images }

const image = (contentType: string, body: Buffer): DecodedAnswer | UpstreamProblem => {
  if (body.length > largeBody) {
    const images = Math.max(1, occurrences(body, '"b64_json"'))
    return { contentType, body, usage: withImages(usageAtEnd(body), images), texts: () => [] }
  }
  const answer = objectIn(body)
  if (answer === undefined || !Array.isArray(answer["data"])) return malformedAnswer("it holds no images")
  const images = objectsOf(answer["data"])
  const texts = () => images.flatMap((one) => stringOf(one["revised_prompt"]) ?? [])
  return { contentType, body, usage: withImages(usageOfOpenAi(answer["usage"]), images.length), texts }
}

/** The seconds that the upstream names, or that the file's header does, or that its size makes likely. */
const transcribedUsage = (call: UpstreamCall, answer: JsonObject): Usage => {
  const said = objectOf(answer["usage"])
  const reported = said["seconds"] ?? answer["duration"]
  const tokens = said["type"] === "duration" ? undefined : usageOfOpenAi(said)
  if (typeof reported === "number" && reported >= 0) {
    return { ...(tokens ?? usageOf({})), seconds: Math.min(reported, longestAudio) }
  }
  const seconds = (call.files ?? []).reduce((sum, file) => sum + (file.seconds ?? file.size / usualAudio), 0)
  return tokens === undefined ? usageOf({ seconds, estimated: true }) : { ...tokens, seconds }
}

const transcription = (call: UpstreamCall, contentType: string, body: Buffer): DecodedAnswer | UpstreamProblem => {
  if (!contentType.includes("json")) {
    return { contentType, body, usage: transcribedUsage(call, {}), texts: () => [body.toString()] }
  }
  const answer = objectIn(body)
  const text = stringOf(answer?.["text"])
  if (answer === undefined || text === undefined) return malformedAnswer("it holds no text")
  return { contentType, body, usage: transcribedUsage(call, answer), texts: () => [text] }
}

const rerank = (contentType: string, body: Buffer): DecodedAnswer | UpstreamProblem => {
  const answer = objectIn(body)
  const results = answer?.["results"] ?? answer?.["data"]
  if (answer === undefined || !Array.isArray(results)) return malformedAnswer("it holds no results")
  const { data: _data, ...rest } = answer
  const usage = objectOf(answer["usage"])
  const input = countOf(usage["prompt_tokens"] ?? usage["total_tokens"])
  return {
    contentType,
    body: answer["results"] === undefined ? Buffer.from(JSON.stringify({ ...rest, results })) : body,
    usage: input === 0 ? undefined : usageOf({ input }),
    texts: () => []
  }
}

const moderation = (contentType: string, body: Buffer): DecodedAnswer | UpstreamProblem => {
  const answer = objectIn(body)
  if (answer === undefined || !Array.isArray(answer["results"])) return malformedAnswer("it holds no results")
  return { contentType, body, usage: usageOfOpenAi(answer["usage"]), texts: () => [] }
}

const objectIn = (body: Buffer): JsonObject | undefined => {
  const parsed = parseJson(body)
  return isJsonObject(parsed) ? parsed : undefined
}

/** A successful answer to a media call. */
export const mediaAnswer = (
  call: UpstreamCall,
  operation: MediaOperation,
  response: WireResponse
): DecodedAnswer | UpstreamProblem => {
  const contentType = headerText(response.headers, "content-type") ?? "application/json"
  switch (operation) {
    case "speech":
      return speech(call, response)
    case "image":
    case "image_edit":
      return image(contentType, response.body)
    case "transcription":
      return transcription(call, contentType, response.body)
    case "rerank":
      return rerank(contentType, response.body)
    case "moderation":
      return moderation(contentType, response.body)
  }
}
