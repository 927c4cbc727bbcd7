import { createHash } from "node:crypto"
import { crc32, deflateSync } from "node:zlib"
import type { JsonObject } from "#domain/json.ts"
import { countTokens } from "#layers/inference/sandbox/tokens.ts"

const usualSize = 256
const largestSize = 1_024
const mostImages = 10

const chunk = (type: string, data: Buffer): Buffer => {
  const named = Buffer.concat([Buffer.from(type, "latin1"), data])
  const length = Buffer.alloc(4)
  length.writeUInt32BE(data.length)
  const check = Buffer.alloc(4)
  check.writeUInt32BE(crc32(named))
  return Buffer.concat([length, named, check])
}

/** A PNG of eight by eight coloured fields, taken from the seed's bytes. */
export const pngOf = (width: number, height: number, seed: Buffer): Buffer => {
  const palette = Buffer.alloc(48)
  for (let at = 0; at < 48; at += 1) palette[at] = seed[at % seed.length]! ^ (at * 5)
  const row = (y: number): Buffer => {
    const line = Buffer.alloc(width + 1)
    for (let x = 0; x < width; x += 1) {
      const field = Math.floor((x * 8) / width) + 8 * Math.floor((y * 8) / height)
      line[x + 1] = (seed[field % seed.length]! >> (field >> 5)) & 15
    }
    return line
  }
  const rows = Array.from({ length: 8 }, (_, at) => row(Math.floor((at * height) / 8)))
  const pixels = Buffer.concat(Array.from({ length: height }, (_, y) => rows[Math.floor((y * 8) / height)]!))
  const header = Buffer.alloc(13)
  header.writeUInt32BE(width, 0)
  header.writeUInt32BE(height, 4)
  header[8] = 8
  header[9] = 3
  return Buffer.concat([
    Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]),
    chunk("IHDR", header),
    chunk("PLTE", palette),
    chunk("IDAT", deflateSync(pixels)),
    chunk("IEND", Buffer.alloc(0))
  ])
}

const sizeOf = (size: unknown): readonly [width: number, height: number] => {
  const match = typeof size === "string" ? /^(\d{1,5})x(\d{1,5})$/.exec(size) : null
  const side = (text: string | undefined) => Math.min(Math.max(Number(text ?? usualSize), 1), largestSize)
  return [side(match?.[1]), side(match?.[2])]
}

/** Images that are the same for the same prompt; `created` is in Unix seconds. */
export const imagesAnswer = (
  body: JsonObject,
  created: number
): JsonObject | { readonly param: string; readonly why: string } => {
  const { n, prompt, response_format: format, size } = body
  if (typeof prompt !== "string" || prompt === "") return { param: "prompt", why: "must be a text" }
  const count = Number(n ?? 1)
  if (!Number.isInteger(count) || count < 1 || count > mostImages) {
    return { param: "n", why: `must be between 1 and ${mostImages}` }
  }
  const [width, height] = sizeOf(size)
  const data = Array.from({ length: count }, (_, at) => {
    const seed = createHash("sha512").update(`${at} ${prompt}`).digest()
    const png = pngOf(width, height, seed).toString("base64")
    return format === "url" ? { url: `data:image/png;base64,${png}` } : { b64_json: png }
  })
  const tokens = countTokens(prompt)
  return { created, data, usage: { input_tokens: tokens, output_tokens: 0, total_tokens: tokens } }
}
