import { isJsonObject, type JsonObject } from "#domain/json.ts"
import type { Usage } from "#domain/usage.ts"
import { parseSseEvent, SseSplitter } from "#layers/inference/sse.ts"
import { malformedAnswer } from "#layers/inference/wires/problems.ts"
import { parseJson } from "#layers/inference/wires/values.ts"
import type { StreamDecoder, UpstreamProblem } from "#services/inference/Wire.ts"

/** What a native event is to the gateway. `prelude` and `keepalive` are no content, and held back until there is some. */
export type NativeKind = "content" | "prelude" | "keepalive" | "end" | UpstreamProblem

/** Looks at the events of a native stream, which go to the client as they came. */
export interface NativeReader {
  readonly read: (event: string | undefined, data: JsonObject) => NativeKind
  /** The upstream closed the stream without having said that it ends; undefined: it may. */
  readonly close: () => UpstreamProblem | undefined
  readonly usage: () => Usage | undefined
  readonly text: () => string
}

const largestEvent = 32 * 1024 * 1024
/** Of events that are held back; more than this is passed on whatever it is. */
const mostHeld = 256 * 1024

/** The last event may have been taken before the second half of its last CR LF came. */
const wholeLineEnd = (raw: Buffer): Buffer =>
  raw.at(-1) === 13 && raw.includes("\r\n") ? Buffer.concat([raw, Buffer.from("\n")]) : raw

/**
 * Passes a provider's own events on byte for byte, reading usage and text on the way. What precedes the first content is
 * held until it comes, so that an error there can still be answered by another deployment.
 */
export class NativeDecoder implements StreamDecoder {
  readonly #reader: NativeReader
  readonly #splitter = new SseSplitter(largestEvent)
  #held: Array<Buffer> = []
  #heldBytes = 0
  #begun = false
  events = 0
  ended = false
  problem: UpstreamProblem | undefined

  constructor(reader: NativeReader) {
    this.#reader = reader
  }

  feed(chunk: Buffer): Buffer | undefined {
    if (this.ended || this.problem !== undefined) return undefined
    const fits = this.#splitter.push(chunk, (raw) => this.#event(raw))
    if (!fits) this.problem ??= malformedAnswer("an event is too large")
    return this.#take()
  }

  finish(): Buffer | undefined {
    if (this.ended || this.problem !== undefined) return undefined
    const rest = this.#splitter.rest()
    if (rest.length > 0 && parseJson(parseSseEvent(rest).data ?? "") !== undefined) {
      this.#event(Buffer.concat([rest, Buffer.from("\n\n")]))
    } else if (rest.toString("latin1") === "\n") this.#held.push(rest)
    if (!this.ended && this.problem === undefined) {
      this.problem = this.#reader.close()
      this.ended = this.problem === undefined
      this.#begun ||= this.ended
    }
    return this.#take()
  }

  usage(): Usage | undefined {
    return this.#reader.usage()
  }

  text(): string {
    return this.#reader.text()
  }

  #event(raw: Buffer): void {
    if (this.ended || this.problem !== undefined) return
    const kind = this.#kindOf(raw)
    if (typeof kind === "object") {
      this.problem = kind
      return
    }
    if (kind !== "keepalive") this.events += 1
    if (kind === "end") this.ended = true
    this.#held.push(kind === "end" ? wholeLineEnd(raw) : raw)
    this.#heldBytes += raw.length
    this.#begun ||= kind === "content" || kind === "end" || this.#heldBytes > mostHeld
  }

  #kindOf(raw: Buffer): NativeKind {
    const { event, data } = parseSseEvent(raw)
    if (data === undefined || data === "") return "keepalive"
    const read = parseJson(data)
    if (!isJsonObject(read)) return malformedAnswer("an event is not a JSON object")
    return this.#reader.read(event, read)
  }

  #take(): Buffer | undefined {
    if (!this.#begun || this.#held.length === 0) return undefined
    const [first] = this.#held
    const bytes = this.#held.length === 1 ? first : Buffer.concat(this.#held)
    this.#held = []
    this.#heldBytes = 0
    return bytes
  }
}
