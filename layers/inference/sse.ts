/**
 * Server-sent events (HTML standard, section 9.2.6) as bytes: events are cut out whole, in the bytes they came in, so
 * that what needs no reading can be passed on unread.
 */
const lf = 10
const cr = 13

/** The fields of one event; `data` is undefined for comments and for events without data. */
export interface SseEvent {
  readonly event: string | undefined
  readonly data: string | undefined
}

/** Cuts a byte stream into events. Bytes may be cut anywhere, within characters and within CR LF too. */
export class SseSplitter {
  readonly #limit: number
  #parts: Array<Buffer> = []
  #held = 0
  #lineEmpty = true
  #afterCr = false

  /** `limit`: the largest event, in bytes. */
  constructor(limit: number) {
    this.#limit = limit
  }

  /** No part of an event is held: the next byte begins one. */
  get idle(): boolean {
    return this.#held === 0 && !this.#afterCr
  }

  /**
   * Calls back with the raw bytes of each event that the chunk completes, its blank line included; joined they are the
   * input. False: an event is larger than the limit, and nothing more can be read.
   */
  push(chunk: Buffer, event: (raw: Buffer) => void): boolean {
    let start = 0
    for (let index = 0; index < chunk.length; index += 1) {
      const byte = chunk[index]!
      if (byte === lf && this.#afterCr) {
        this.#afterCr = false
        continue
      }
      this.#afterCr = byte === cr
      if (byte !== lf && byte !== cr) {
        this.#lineEmpty = false
        continue
      }
      if (!this.#lineEmpty) {
        this.#lineEmpty = true
        continue
      }
      // A CR at the very end may be half of a CR LF; the other half then opens the next event as an empty line.
      if (byte === cr && chunk[index + 1] === lf) {
        this.#afterCr = false
        index += 1
      }
      const end = chunk.subarray(start, index + 1)
      start = index + 1
      if (this.#held + end.length > this.#limit) return false
      event(this.#join(end))
    }
    if (start < chunk.length) {
      const rest = start === 0 ? chunk : chunk.subarray(start)
      this.#parts.push(rest)
      this.#held += rest.length
    }
    return this.#held <= this.#limit
  }

  /** What no blank line has ended yet. */
  rest(): Buffer {
    return this.#join(Buffer.alloc(0))
  }

  #join(last: Buffer): Buffer {
    if (this.#parts.length === 0) return last
    const joined = Buffer.concat([...this.#parts, last])
    this.#parts = []
    this.#held = 0
    return joined
  }
}

const lineEnd = /\r\n|\n|\r/

/** Reads the fields of one event. Several `data` lines are joined with LF; `id` and `retry` mean nothing here. */
export const parseSseEvent = (raw: Buffer | string): SseEvent => {
  let event: string | undefined
  let data: string | undefined
  const text = typeof raw === "string" ? raw : raw.toString()
  for (const line of (text.charCodeAt(0) === 0xfeff ? text.slice(1) : text).split(lineEnd)) {
    if (line === "" || line.charCodeAt(0) === 58) continue
    const colon = line.indexOf(":")
    const name = colon === -1 ? line : line.slice(0, colon)
    if (name !== "data" && name !== "event") continue
    const value = colon === -1 ? "" : line.slice(line.charCodeAt(colon + 1) === 32 ? colon + 2 : colon + 1)
    if (name === "event") event = value
    else data = data === undefined ? value : `${data}\n${value}`
  }
  return { event, data }
}

/** One event as the gateway writes it. `data` must be a single line. */
export const sseEvent = (data: string, event?: string): string =>
  event === undefined ? `data: ${data}\n\n` : `event: ${event}\ndata: ${data}\n\n`
