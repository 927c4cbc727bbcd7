import type { Readable } from "node:stream"
import type { Redacted } from "effect"
import type { GatewayError, InvalidRequest } from "#domain/errors.ts"
import type { JsonObject } from "#domain/json.ts"
import type { ModelOperation } from "#domain/operations.ts"
import type { WireName } from "#domain/providers/wires.ts"
import type { Usage } from "#domain/usage.ts"
import type { UpstreamCall } from "#services/inference/ProviderRouter.ts"

/** The upstream side of a deployment, as its wire needs it. Made once per change of the model or its credential. */
export interface WireTarget {
  /** The provider prefix of `gateway_params.model`: `openai`, `groq`, `bedrock`. */
  readonly provider: string
  /** The rest of `gateway_params.model`: what the upstream calls the model. */
  readonly upstreamModel: string
  /** Absolute, http or https, without a trailing slash. Empty when neither the model nor its preset names one. */
  readonly apiBase: string
  readonly apiKey: Redacted.Redacted<string> | undefined
  /** The header that carries the key where the preset names one; undefined: the wire's own habit. */
  readonly apiKeyHeader: string | undefined
  /**
   * `gateway_params` overlaid with the values of the named credential: `api_version`, `aws_region_name`,
   * `aws_access_key_id` and the like. Holds secrets.
   */
  readonly params: Redacted.Redacted<JsonObject>
  /** Whether a field that cannot be carried is dropped instead of refused (`drop_params`). */
  readonly dropParams: boolean
  /** For wires whose requests must name a limit when the client named none. */
  readonly maxOutputTokens: number
  /** Whether streams report usage only when asked by `stream_options.include_usage`, or refuse to be asked. */
  readonly streamUsage: "ask" | "unasked"
}

/** A body that is not held in memory. Every try opens it anew; whoever opened it destroys it. */
export interface StreamedBody {
  /** In bytes. */
  readonly length: number
  readonly open: () => Readable
}

/** A request as it goes to the deployment's origin. Header names are lower case; `content-length` is the transport's. */
export interface WireRequest {
  readonly method: "GET" | "POST"
  /** Path and query, from the origin's root. */
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: string | Buffer
  /** Sent in place of `body`. Not for requests that are signed. */
  readonly upload?: StreamedBody
}

export type WireHeaders = Readonly<Record<string, string | ReadonlyArray<string> | undefined>>

/** A whole upstream answer. An error's body may be cut at 64 KiB. */
export interface WireResponse {
  readonly status: number
  readonly headers: WireHeaders
  readonly body: Buffer
}

/** A successful buffered answer, in the shape of the operation's client. */
export interface DecodedAnswer {
  readonly contentType: string
  readonly body: Buffer
  /** Disjoint buckets; undefined when the upstream reported nothing. */
  readonly usage: Usage | undefined
  /** Computed when first asked for. */
  readonly texts: () => ReadonlyArray<string>
}

/** What to do after a failed try. */
export type Remedy =
  /** The same deployment may answer the next try: connection errors, 408, 429, 5xx, malformed answers. */
  | "retry"
  /** Only another deployment may: a refused credential, a model that the upstream does not have. */
  | "next"
  /** None would: the request itself is at fault. */
  | "none"

/** A failed try, judged. Messages carry at most the upstream's own wording, never its headers or a credential. */
export interface UpstreamProblem {
  readonly _tag: "UpstreamProblem"
  /** What the client is told when no other try follows. */
  readonly error: GatewayError
  readonly remedy: Remedy
  /** Whether it speaks against the deployment's health; a refused request does not, nor does a 429. */
  readonly unhealthy: boolean
  /** How long the upstream asked to wait, in milliseconds. */
  readonly retryAfterMs: number | undefined
}

/**
 * Reads one upstream stream. A synchronous push state machine: `feed` takes the bytes as they arrive, cut anywhere (SSE
 * text or binary frames), and returns whole events for the client, or undefined when there are none yet.
 *
 * The client's events are chat-completion chunks as SSE (`data: {…}\n\n`) for `chat` and `completion`, and the
 * provider's own events for native operations. The final `data: [DONE]` is never among them: the pipeline writes it.
 * A returned Buffer may share memory with the chunk that was fed, and is not changed afterwards.
 */
export interface StreamDecoder {
  readonly feed: (chunk: Buffer) => Buffer | undefined
  /** The upstream closed the stream in an orderly way: what was held back. May set `problem` if the end is missing. */
  readonly finish: () => Buffer | undefined
  /** Upstream events read so far that carry meaning; comments, pings and keep-alives are none. Drives the deadline. */
  readonly events: number
  /** Whether the stream's own end was read (`[DONE]`, `message_stop`, …). */
  readonly ended: boolean
  /** An error frame, an undecodable event, a missing end. Nothing is fed after it is set. */
  readonly problem: UpstreamProblem | undefined
  /** As reported so far; undefined when nothing was. */
  readonly usage: () => Usage | undefined
  /** All text generated so far (content, reasoning, tool arguments), for estimating usage. */
  readonly text: () => string
}

/**
 * One call on its way through a wire: the request, and how to read what comes back. It may remember what it needs from
 * the client's body. A retry uses the same exchange; each try opens a decoder of its own.
 */
export interface Exchange {
  readonly request: WireRequest
  /** For 2xx answers that are no stream. */
  readonly decode: (response: WireResponse) => DecodedAnswer | UpstreamProblem
  /** For 2xx answers of streamed calls. */
  readonly openStream: (headers: WireHeaders) => StreamDecoder
  /** Judges an answer outside 2xx to this call; where it is absent, the wire's own `classify` does. */
  readonly classify?: (response: WireResponse) => UpstreamProblem
}

/** A wire bound to one deployment: everything that does not depend on the call is computed. */
export interface BoundWire {
  /** Scheme, host and port: `https://api.openai.com`. */
  readonly origin: string
  readonly operations: ReadonlySet<ModelOperation>
  /** The `Content-Type` of a stream, as the client gets it. */
  readonly streamType: string
  /** Fails with `unsupported_parameter` (naming the param) for what the wire cannot carry, unless `dropParams`. */
  readonly encode: (call: UpstreamCall) => Exchange | InvalidRequest
  /** Judges an answer outside 2xx. */
  readonly classify: (response: WireResponse) => UpstreamProblem
  /**
   * The last step before each try, for signatures that cover the bytes and the time (SigV4) and for short-lived tokens.
   * `now` is in Unix milliseconds. Throws or rejects when it cannot sign: the next deployment is tried.
   */
  readonly sign?: (request: WireRequest, now: number) => WireRequest | Promise<WireRequest>
}

/** A wire format: pure translation, no I/O, no Effect. */
export interface Wire {
  readonly name: WireName
  /** Binds to a deployment, or says in one line which setting is missing or unusable. */
  readonly bind: (target: WireTarget) => BoundWire | string
}
