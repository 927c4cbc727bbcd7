/** Frames of `application/vnd.amazon.eventstream`: a checked prelude, headers, a payload, a checksum over all. */
import { crc32 } from "node:zlib"

export interface Frame {
  /** Those headers whose value is a text; the others mean nothing here. */
  readonly headers: ReadonlyMap<string, string>
  readonly payload: Buffer
}

/** Total length, length of the headers, checksum of both. */
const preludeLength = 12
const checksumLength = 4
/** What AWS allows, with room for the frame around it. */
const largestHeaders = 128 * 1024
const largestFrame = 24 * 1024 * 1024 + largestHeaders

/** Lengths of header values by their type; -1: two bytes say how long it is. */
const valueLengths: ReadonlyArray<number> = [0, 0, 1, 2, 4, 8, -1, -1, 8, 16]
const textType = 7

const readHeaders = (bytes: Buffer): ReadonlyMap<string, string> | undefined => {
  const headers = new Map<string, string>()
  let at = 0
  while (at < bytes.length) {
    const nameEnd = at + 1 + (bytes[at] ?? 0)
    const type = bytes[nameEnd]
    const fixed = type === undefined ? undefined : valueLengths[type]
    if (fixed === undefined) return undefined
    let from = nameEnd + 1
    let length = fixed
    if (length === -1) {
      if (from + 2 > bytes.length) return undefined
      length = bytes.readUInt16BE(from)
      from += 2
    }
    if (from + length > bytes.length) return undefined
    if (type === textType) {
      headers.set(bytes.toString("utf8", at + 1, nameEnd), bytes.toString("utf8", from, from + length))
    }
    at = from + length
  }
  return headers
}

/** Cuts a byte stream, which may be cut anywhere, into frames. */
export class FrameSplitter {
  #parts: Array<Buffer> = []
  #held = 0
  /** How many bytes make the next step: a prelude, or a whole frame. */
  #needed = preludeLength

  /** Whether a frame has begun and not ended. */
  get broken(): boolean {
    return this.#held > 0
  }

  /** Calls back with each frame that the chunk completes; otherwise says what is wrong, and nothing more can be read. */
  push(chunk: Buffer, frame: (frame: Frame) => void): string | undefined {
    if (chunk.length === 0) return undefined
    this.#parts.push(chunk)
    this.#held += chunk.length
    while (this.#held >= this.#needed) {
      const bytes = this.#parts.length === 1 ? this.#parts[0]! : Buffer.concat(this.#parts)
      this.#parts = [bytes]
      const total = bytes.readUInt32BE(0)
      const headersLength = bytes.readUInt32BE(4)
      if (this.#needed === preludeLength) {
        if (crc32(bytes.subarray(0, 8)) !== bytes.readUInt32BE(8)) return "a frame's prelude is damaged"
        if (total > largestFrame || headersLength > largestHeaders) return "a frame is too large"
        if (total < preludeLength + headersLength + checksumLength) return "a frame's lengths contradict"
        this.#needed = total
        continue
      }
      const end = total - checksumLength
      if (crc32(bytes.subarray(0, end)) !== bytes.readUInt32BE(end)) return "a frame is damaged"
      const payloadStart = preludeLength + headersLength
      const headers = readHeaders(bytes.subarray(preludeLength, payloadStart))
      if (headers === undefined) return "a frame's headers cannot be read"
      const rest = bytes.subarray(total)
      this.#parts = rest.length === 0 ? [] : [rest]
      this.#held = rest.length
      this.#needed = preludeLength
      frame({ headers, payload: bytes.subarray(payloadStart, end) })
    }
    return undefined
  }
}
