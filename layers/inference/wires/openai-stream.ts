import { isJsonObject, type JsonObject } from "#domain/json.ts"
import type { Usage } from "#domain/usage.ts"
import { parseSseEvent, SseSplitter } from "#layers/inference/sse.ts"
import { choiceTexts, opensOnly, saysFinished } from "#layers/inference/wires/openai-texts.ts"
import { usageOfOpenAi } from "#layers/inference/wires/openai-usage.ts"
import { malformedAnswer, problemOfFrame, streamCut } from "#layers/inference/wires/problems.ts"
import { parseJson } from "#layers/inference/wires/values.ts"
import type { StreamDecoder, UpstreamProblem } from "#services/inference/Wire.ts"

/** Images come inside single events. */
const largestEvent = 32 * 1024 * 1024
/** Unread events are kept up to this size, then boiled down to their text: thousands of streams are open at once. */
const keptBytes = 8 * 1024
/** Events that open the answer are held back up to this size. */
const mostHeld = 256 * 1024
/** Text beyond this is not kept for estimating. */
const keptText = 8 * 1024 * 1024

/** Whether a field of this name (quoted) occurs with a value other than null. */
const holds = (text: string, name: string): boolean => {
  for (let at = text.indexOf(name); at !== -1; at = text.indexOf(name, at + name.length)) {
    let next = at + name.length
    while (text.charCodeAt(next) === 32) next += 1
    if (text.charCodeAt(next) !== 58) continue
    next += 1
    while (text.charCodeAt(next) === 32) next += 1
    if (text.charCodeAt(next) !== 110) return true
  }
  return false
}

const needsReading = (text: string): boolean => holds(text, '"usage"') || holds(text, '"error"')

/** How many events of the plain form `data: {…}\n\n` the chunk consists of; 0 when it holds anything else. */
const plainEvents = (text: string): number => {
  let events = 0
  let at = 0
  while (at < text.length) {
    if (!text.startsWith("data: {", at)) return 0
    const end = text.indexOf("\n\n", at)
    if (end === -1 || text.charCodeAt(end - 1) !== 125) return 0
    at = end + 2
    events += 1
  }
  return events
}

/** Whether plain events do no more than open the answer. */
const plainOpening = (text: string): boolean =>
  text
    .split("\n\n")
    .slice(0, -1)
    .every((event) => opensOnly(parseJson(event.slice(6))))

/** An event in the plain form, as its bytes; line breaks within JSON are mere space. */
const asPlain = (data: string): string => Buffer.from(`data: ${data.replaceAll("\n", " ")}\n\n`).toString("latin1")

const contentMark = '"delta":{"content":"'

/** The content of the commonest event, one plain piece of text and nothing else; undefined: it takes a parser. */
const plainContent = (data: string): string | undefined => {
  const mark = data.indexOf(contentMark)
  if (mark === -1) return undefined
  const start = mark + contentMark.length
  const end = data.indexOf('"', start)
  if (end === -1 || data.charCodeAt(end + 1) !== 125 || data.indexOf('"delta"', end) !== -1) return undefined
  if (data.indexOf('"finish_reason":"', end) !== -1 || data.lastIndexOf('"finish_reason":"', mark) !== -1) {
    return undefined
  }
  const content = data.slice(start, end)
  return content.includes("\\") ? undefined : content
}

const isUsageOnly = (chunk: JsonObject): boolean => {
  const choices = chunk["choices"]
  return choices === undefined || choices === null || (Array.isArray(choices) && choices.length === 0)
}

/**
 * Chat-completion chunks as they come. A chunk of plain events is scanned, not parsed; an event is read only where it
 * may hold usage or an error, or looks odd. Everything but `[DONE]`, and the usage event that the client did not ask
 * for, is passed on byte for byte; what precedes the first content when that comes, so that a stream that fails before
 * it can still be answered by another deployment.
 */
export class OpenAiStreamDecoder implements StreamDecoder {
  readonly #wantsUsage: boolean
  readonly #splitter = new SseSplitter(largestEvent)
  /** Latin1 strings: a thousand streams' buffers would each keep a memory block of their own alive. */
  #unread: Array<string> = []
  #unreadBytes = 0
  #text = ""
  #usage: Usage | undefined
  #finished = false
  /** Whether content has come. */
  #begun = false
  #held: Array<Buffer> = []
  #heldBytes = 0
  events = 0
  ended = false
  problem: UpstreamProblem | undefined

  constructor(wantsUsage: boolean) {
    this.#wantsUsage = wantsUsage
  }

  feed(chunk: Buffer): Buffer | undefined {
    if (this.ended || this.problem !== undefined) return undefined
    if (this.#splitter.idle) {
      const text = chunk.toString("latin1")
      const events = plainEvents(text)
      if (events > 0 && !needsReading(text)) {
        this.events += events
        this.#keep(text)
        this.#begun ||= !plainOpening(text)
        if (this.#begun && this.#held.length === 0) return chunk
        this.#holdBytes(chunk)
        return this.#take()
      }
    }
    const fits = this.#splitter.push(chunk, (raw) => this.#hold(raw))
    if (!fits) this.problem ??= malformedAnswer("an event is too large")
    return this.#take()
  }

  finish(): Buffer | undefined {
    if (this.ended || this.problem !== undefined) return undefined
    const rest = this.#splitter.rest()
    if (rest.length > 0) this.#last(rest)
    this.#boilDown()
    if (!this.ended && this.problem === undefined) {
      if (this.#finished) this.ended = true
      else this.problem = streamCut
    }
    return this.#take()
  }

  usage(): Usage | undefined {
    return this.#usage
  }

  text(): string {
    this.#boilDown()
    return this.#text
  }

  /** An event whose blank line never came: taken if it is whole. */
  #last(rest: Buffer): void {
    const data = parseSseEvent(rest).data
    if (data === undefined || (data !== "[DONE]" && parseJson(data) === undefined)) return
    this.#hold(Buffer.concat([rest, Buffer.from("\n\n")]))
  }

  #hold(raw: Buffer): void {
    if (!this.#read(raw)) return
    this.#begun ||= !opensOnly(parseJson(parseSseEvent(raw).data ?? ""))
    this.#holdBytes(raw)
  }

  #holdBytes(bytes: Buffer): void {
    this.#held.push(bytes)
    this.#heldBytes += bytes.length
    this.#begun ||= this.#heldBytes > mostHeld
  }

  /** What may go to the client now. */
  #take(): Buffer | undefined {
    if ((!this.#begun && !this.ended) || this.#held.length === 0) return undefined
    const [first] = this.#held
    const bytes = this.#held.length === 1 ? first : Buffer.concat(this.#held)
    this.#held = []
    this.#heldBytes = 0
    return bytes
  }

  /** Whether the event is passed on. */
  #read(raw: Buffer): boolean {
    if (this.ended || this.problem !== undefined) return false
    const { event, data } = parseSseEvent(raw)
    if (data === undefined || data === "") return this.events > 0
    if (data === "[DONE]") {
      this.ended = true
      return false
    }
    const whole = data.startsWith("{") && data.endsWith("}")
    if (event !== "error" && whole && !needsReading(data)) {
      this.events += 1
      this.#keep(asPlain(data))
      return true
    }
    const chunk = parseJson(data)
    if (!isJsonObject(chunk)) {
      this.problem = malformedAnswer("an event is not a JSON object")
      return false
    }
    const error = chunk["error"]
    if (event === "error" || isJsonObject(error) || typeof error === "string") {
      this.problem = problemOfFrame(chunk)
      return false
    }
    this.events += 1
    const usage = usageOfOpenAi(chunk["usage"])
    if (usage !== undefined) {
      this.#usage = usage
      if (isUsageOnly(chunk) && !this.#wantsUsage) return false
    }
    this.#keep(asPlain(data))
    return true
  }

  #keep(raw: string): void {
    this.#unread.push(raw)
    this.#unreadBytes += raw.length
    if (this.#unreadBytes > keptBytes) this.#boilDown()
  }

  /** Everything kept is of the form `data: {…}\n\n`. */
  #boilDown(): void {
    if (this.#unread.length === 0) return
    const text = Buffer.from(this.#unread.join(""), "latin1").toString()
    this.#unread = []
    this.#unreadBytes = 0
    for (let at = 0; at < text.length;) {
      const end = text.indexOf("\n\n", at)
      this.#boil(text.slice(at + 6, end === -1 ? text.length : end))
      if (end === -1) return
      at = end + 2
    }
  }

  #boil(data: string): void {
    const plain = plainContent(data)
    if (plain !== undefined) {
      if (this.#text.length < keptText) this.#text += plain
      return
    }
    const chunk = parseJson(data)
    this.#finished ||= saysFinished(chunk)
    if (this.#text.length < keptText) for (const text of choiceTexts(chunk)) this.#text += text
  }
}
