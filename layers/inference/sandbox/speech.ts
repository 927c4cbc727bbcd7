import type { Json, JsonObject } from "#domain/json.ts"
import { audioSeconds } from "#domain/audio.ts"
import type { FormFile } from "#layers/inference/sandbox/form.ts"

const rate = 16_000
const pcmRate = 24_000
const secondsPerWord = 0.3
const longestText = 4_096
const longestSeconds = 60
const fastest = 4
const slowest = 0.25

/** A tone for each word, its pitch the word's. */
const samplesOf = (words: ReadonlyArray<string>, samplesPerSecond: number, speed: number): Buffer => {
  const perWord = Math.round((samplesPerSecond * secondsPerWord) / speed)
  const most = Math.floor((longestSeconds * samplesPerSecond) / perWord)
  const said = words.slice(0, most)
  const samples = Buffer.alloc(said.length * perWord * 2)
  said.forEach((word, at) => {
    let sum = 0
    for (let index = 0; index < word.length; index += 1) sum += word.charCodeAt(index)
    const pitch = 220 + (sum % 32) * 10
    for (let index = 0; index < perWord; index += 1) {
      const fade = Math.min(1, index / 200, (perWord - index) / 200)
      const value = Math.sin((2 * Math.PI * pitch * index) / samplesPerSecond) * 8_000 * fade
      samples.writeInt16LE(Math.round(value), (at * perWord + index) * 2)
    }
  })
  return samples
}

const chunk = (name: string, data: Buffer): Buffer => {
  const head = Buffer.alloc(8)
  head.write(name, "latin1")
  head.writeUInt32LE(data.length, 4)
  return Buffer.concat([head, data, Buffer.alloc(data.length % 2)])
}

/** A WAV file: one channel of 16 bits. What is said stands in its comment, where `sandbox/transcribe` reads it. */
const wavOf = (text: string, samples: Buffer): Buffer => {
  const format = Buffer.alloc(16)
  format.writeUInt16LE(1, 0)
  format.writeUInt16LE(1, 2)
  format.writeUInt32LE(rate, 4)
  format.writeUInt32LE(rate * 2, 8)
  format.writeUInt16LE(2, 12)
  format.writeUInt16LE(16, 14)
  const comment = Buffer.concat([Buffer.from("INFO"), chunk("ICMT", Buffer.from(text.slice(0, 1_000)))])
  const body = Buffer.concat([
    Buffer.from("WAVE"),
    chunk("fmt ", format),
    chunk("LIST", comment),
    chunk("data", samples)
  ])
  return chunk("RIFF", body)
}

/** MPEG 2, layer III: 16 kHz, 8 kbit/s, one channel; what follows the header is nothing, which sounds like nothing. */
const silentFrame = Buffer.concat([Buffer.from([0xff, 0xf3, 0x18, 0xc0]), Buffer.alloc(32)])
const samplesPerFrame = 576

/** A number in seven bits a byte, as ID3 writes it. */
const syncsafe = (value: number): Buffer =>
  Buffer.from([(value >> 21) & 0x7f, (value >> 14) & 0x7f, (value >> 7) & 0x7f, value & 0x7f])

const tagged = (name: string, body: Buffer): Buffer =>
  Buffer.concat([Buffer.from(name, "latin1"), syncsafe(body.length), Buffer.alloc(2), body])

/** An MP3 of the same length as the WAV, but silent. What is said stands in its comment (ID3 2.4, UTF-8). */
const mp3Of = (text: string, seconds: number): Buffer => {
  const comment = tagged("COMM", Buffer.from(`\u0003eng\0${text.slice(0, 1_000)}`))
  const frames = Math.ceil((seconds * rate) / samplesPerFrame)
  const head = Buffer.concat([Buffer.from("ID3\u0004\0\0", "latin1"), syncsafe(comment.length), comment])
  return Buffer.concat([head, ...Array.from({ length: frames }, () => silentFrame)])
}

/**
 * What the sandbox says: an MP3 where none or that is asked for, bare samples for `pcm`, and a WAV for every other format:
 * for `opus`, `aac` and `flac` too, which it cannot write.
 */
export const spoken = (body: JsonObject): Buffer | { readonly param: string; readonly why: string } => {
  const { input, response_format: format, speed } = body
  if (typeof input !== "string" || input.trim() === "") return { param: "input", why: "must be a text" }
  if (input.length > longestText) return { param: "input", why: `must have at most ${longestText} characters` }
  const pace = typeof speed === "number" ? Math.min(Math.max(speed, slowest), fastest) : 1
  const words = input.trim().split(/\s+/)
  if (format === "pcm") return samplesOf(words, pcmRate, pace)
  if (typeof format === "string" && format !== "" && format !== "mp3") return wavOf(input, samplesOf(words, rate, pace))
  return mp3Of(input, Math.min((words.length * secondsPerWord) / pace, longestSeconds))
}

/** What a file of the sandbox's own says; undefined for others. */
const commentIn = (head: Buffer): string | undefined => {
  if (head.toString("latin1", 0, 3) === "ID3") {
    const at = head.indexOf("COMM")
    if (at === -1 || at + 15 > head.length) return undefined
    const size = head.subarray(at + 4, at + 8).reduce((sum, byte) => sum * 128 + byte, 0)
    return head.toString("utf8", at + 15, at + 10 + size)
  }
  const at = head.indexOf("ICMT")
  if (at === -1 || at + 8 > head.length) return undefined
  return head.toString("utf8", at + 8, at + 8 + head.readUInt32LE(at + 4))
}

/** The transcription of a file: what the sandbox once said, or a description of a file that it cannot understand. */
export const transcriptionOf = (file: FormFile, format: Json | undefined): JsonObject | string => {
  const seconds = audioSeconds(file.head, file.size)
  const duration = Math.round((seconds ?? 0) * 1000) / 1000
  const text = commentIn(file.head) ?? `The sandbox heard a file of ${file.size} bytes (${file.digest.slice(0, 12)}).`
  if (format === "text") return `${text}\n`
  const usage = { type: "duration", seconds: Math.ceil(duration) }
  if (format !== "verbose_json") return { text, usage }
  const segment = { id: 0, seek: 0, start: 0, end: duration, text, tokens: [], temperature: 0 }
  return { task: "transcribe", language: "english", duration, text, segments: [segment], usage }
}
