import { isJsonObject, type JsonObject } from "#domain/json.ts"
import type { Usage } from "#domain/usage.ts"
import { parseSseEvent, SseSplitter } from "#layers/inference/sse.ts"
import type { ChatStream } from "#layers/inference/wires/chat/stream.ts"
import { malformedAnswer } from "#layers/inference/wires/problems.ts"
import { parseJson } from "#layers/inference/wires/values.ts"
import type { StreamDecoder, UpstreamProblem } from "#services/inference/Wire.ts"

/** What an event was: something generated, nothing that counts as progress, the stream's end, or a failure. */
export type EventKind = "progress" | "nothing" | "end" | UpstreamProblem

/** Understands the events of one upstream stream and writes what they mean into a ChatStream. */
export interface StreamReader {
  readonly read: (event: string | undefined, data: JsonObject) => EventKind
  /** The upstream closed the stream without having said that it ends; undefined: it may. */
  readonly close: () => UpstreamProblem | undefined
  readonly usage: () => Usage | undefined
}

/** The largest event: whole images may come inside one. */
const largestEvent = 32 * 1024 * 1024

/** Cuts SSE into events, has them read, and hands out what was written. */
export class SseDecoder implements StreamDecoder {
  readonly #reader: StreamReader
  readonly #out: ChatStream
  readonly #splitter = new SseSplitter(largestEvent)
  events = 0
  ended = false
  problem: UpstreamProblem | undefined

  constructor(reader: StreamReader, out: ChatStream) {
    this.#reader = reader
    this.#out = out
  }

  feed(chunk: Buffer): Buffer | undefined {
    if (this.ended || this.problem !== undefined) return undefined
    const fits = this.#splitter.push(chunk, (raw) => this.#event(raw))
    if (!fits) this.problem ??= malformedAnswer("an event is too large")
    return this.#out.take()
  }

  finish(): Buffer | undefined {
    if (this.ended || this.problem !== undefined) return undefined
    const rest = this.#splitter.rest()
    // An event whose blank line never came is taken if it is whole.
    if (rest.length > 0 && parseJson(parseSseEvent(rest).data ?? "") !== undefined) this.#event(rest)
    if (!this.ended && this.problem === undefined) {
      this.problem = this.#reader.close()
      this.ended = this.problem === undefined
    }
    return this.#out.take()
  }

  usage(): Usage | undefined {
    return this.#reader.usage()
  }

  text(): string {
    return this.#out.text()
  }

  #event(raw: Buffer): void {
    if (this.ended || this.problem !== undefined) return
    const { event, data } = parseSseEvent(raw)
    if (data === undefined || data === "" || data === "[DONE]") return
    const read = parseJson(data)
    if (!isJsonObject(read)) {
      this.problem = malformedAnswer("an event is not a JSON object")
      return
    }
    const kind = this.#reader.read(event, read)
    if (typeof kind === "object") this.problem = kind
    else if (kind !== "nothing") this.events += 1
    if (kind === "end") this.ended = true
  }
}
