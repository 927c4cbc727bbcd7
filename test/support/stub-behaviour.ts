/**
 * - `hang`: the request is read and never answered.
 * - `hang-body`: headers and half of the answer, then silence.
 * - `reset`: the connection is reset before any byte.
 * - `reset-body`: headers and half of the answer, then a reset.
 * - `end-body`: a stream that ends politely half way, without `[DONE]`.
 * - `garbage`: bytes that are not HTTP.
 * - `invalid-json`: a complete 200 answer (or stream event) that is not JSON.
 * - `short-length`, `long-length`: a Content-Length below or above what is sent.
 * - `error-frame`: a 200 stream that carries an error object half way and ends.
 */
export type Fault =
  | "hang"
  | "hang-body"
  | "reset"
  | "reset-body"
  | "end-body"
  | "garbage"
  | "invalid-json"
  | "short-length"
  | "long-length"
  | "error-frame"

/** How one request is answered. Everything left out is what a healthy upstream does. */
export interface Behaviour {
  /** HTTP status; from 400 on the body is OpenAI's error envelope. */
  readonly status?: number
  /** Seconds (or an HTTP date) for the Retry-After header. */
  readonly retryAfter?: string
  /** Further response headers. */
  readonly headers?: Readonly<Record<string, string>>
  /** A body to send in place of the usual one. */
  readonly body?: string
  /** Milliseconds before the headers. */
  readonly headerDelay?: number
  /** Milliseconds in the middle of an answer that is not streamed. */
  readonly bodyDelay?: number
  readonly fault?: Fault
  /** Content chunks of a stream: 5. */
  readonly chunks?: number
  /** Milliseconds between chunks; 0 is a turn of the event loop. */
  readonly delay?: number
  /** When a stream reports usage: when `stream_options.include_usage` asks (`asked`), `always` or `never`. */
  readonly usage?: "asked" | "always" | "never"
  /** Lines of the stream end in CR LF. */
  readonly crlf?: boolean
  /** SSE comments between the events. */
  readonly comments?: boolean
  /** Each event's JSON is spread over several `data:` lines. */
  readonly multiline?: boolean
  /** Writes are cut within a character. */
  readonly splitUtf8?: boolean
  /** A promise the headers wait for. */
  readonly gate?: Promise<void>
  /** Awaited before each event of a stream. */
  readonly beforeEvent?: (index: number) => Promise<void>
}

const faults: ReadonlySet<string> = new Set<Fault>([
  "hang",
  "hang-body",
  "reset",
  "reset-body",
  "end-body",
  "garbage",
  "invalid-json",
  "short-length",
  "long-length",
  "error-frame"
])

const isFault = (value: string | null): value is Fault => value !== null && faults.has(value)

/**
 * Reads a behaviour from a model name, for callers in another process: `any?status=429&retry_after=2`,
 * `any?fault=reset-body&chunks=20&delay=50`. Names: status, retry_after, header_delay, body_delay, fault, chunks,
 * delay, usage, crlf, comments, multiline, split_utf8. An unknown name or value is an error, so that a misspelt test
 * does not pass.
 */
export const behaviourOf = (model: string): Behaviour => {
  const mark = model.indexOf("?")
  if (mark === -1) return {}
  let behaviour: Behaviour = {}
  for (const [name, value] of new URLSearchParams(model.slice(mark + 1))) {
    behaviour = { ...behaviour, ...option(name, value) }
  }
  return behaviour
}

const option = (name: string, value: string): Behaviour => {
  switch (name) {
    case "status":
      return { status: Number(value) }
    case "retry_after":
      return { retryAfter: value }
    case "header_delay":
      return { headerDelay: Number(value) }
    case "body_delay":
      return { bodyDelay: Number(value) }
    case "chunks":
      return { chunks: Number(value) }
    case "delay":
      return { delay: Number(value) }
    case "crlf":
      return { crlf: value !== "0" }
    case "comments":
      return { comments: value !== "0" }
    case "multiline":
      return { multiline: value !== "0" }
    case "split_utf8":
      return { splitUtf8: value !== "0" }
    case "usage":
      if (value === "asked" || value === "always" || value === "never") return { usage: value }
      break
    case "fault":
      if (isFault(value)) return { fault: value }
      break
  }
  throw new Error(`The stub knows no behaviour ${name}=${value}`)
}
