import type { Readable } from "node:stream"
import { Context, type Effect, type Exit } from "effect"
import type { GatewayError } from "#domain/errors.ts"
import type { JsonObject } from "#domain/json.ts"
import type { ModelOperation } from "#domain/operations.ts"
import type { Price, Usage } from "#domain/usage.ts"
import type { Span } from "#services/telemetry/Tracing.ts"

/** A model as a call sees it: the group of deployments behind one public name. */
export interface RoutableModel {
  readonly name: string
  /** The dearest price of the group, so that a reservation covers every deployment; undefined: unpriced. */
  readonly price: Price | undefined
  /** The largest completion that any deployment may return, in tokens; what is reserved when `max_tokens` is absent. */
  readonly maxOutputTokens: number
  /** The largest prompt that every deployment takes, in tokens; undefined: not known. */
  readonly maxInputTokens: number | undefined
  /** What at least one deployment of the group can do. */
  readonly operations: ReadonlySet<ModelOperation>
}

/** Which deployment answered, and at what price. */
export interface Served {
  readonly deploymentId: string
  readonly provider: string
  readonly upstreamModel: string
  readonly price: Price | undefined
}

/** A file of a multipart request, spooled: it can be read again for every try, and is never in memory as a whole. */
export interface UploadedFile {
  readonly field: string
  readonly filename: string
  readonly contentType: string
  /** In bytes. */
  readonly size: number
  /** How long an audio file plays, as far as its header says; undefined: unknown. */
  readonly seconds: number | undefined
  readonly open: () => Readable
}

/** One model call, ready to leave. `body` is what the client sent, checked; the wire replaces what must differ. */
export interface UpstreamCall {
  readonly operation: ModelOperation
  readonly model: string
  readonly body: JsonObject
  readonly stream: boolean
  /** Whether the client asked for the usage event of a stream. */
  readonly wantsUsage: boolean
  readonly requestId: string
  /** The most tokens the call may take, for the deployment's own `tpm`; estimated from the body when absent. */
  readonly tokens?: number
  /** The client's headers that native shapes forward (`anthropic-beta`, `anthropic-version`), names in lower case. */
  readonly headers?: Readonly<Record<string, string>>
  /** The files of a multipart request; its other fields are in `body`. */
  readonly files?: ReadonlyArray<UploadedFile>
  /** Told when the call leaves for an upstream (true) and when that try has failed (false); between tries nothing runs. */
  readonly underway?: (is: boolean) => void
  /** The span of the call, where it is traced: each try becomes a child of it, and is sent its `traceparent`. */
  readonly span?: Span | undefined
}

/** A whole answer, its bytes as the client shall get them. */
export interface BufferedAnswer {
  readonly _tag: "Buffered"
  readonly served: Served
  readonly contentType: string
  readonly body: Buffer
  /** Undefined when the upstream reported none. */
  readonly usage: Usage | undefined
  /** The generated texts, in order; computed when first asked for (post guardrails, estimating usage). */
  readonly texts: () => ReadonlyArray<string>
}

/** How a stream ended. */
export interface StreamEnd {
  readonly usage: Usage | undefined
  /** The generated text so far, for estimating usage where none was reported. */
  readonly text: () => string
  /** Why the stream broke; undefined for a whole one. */
  readonly failure: GatewayError | undefined
}

/** Where the events of a stream go. Called synchronously, never concurrently, and never after `end` or a `cancel`. */
export interface StreamConsumer {
  /** Bytes ready for the client: whole SSE events, except the final `data: [DONE]`, which is the consumer's to write. */
  readonly chunk: (bytes: Buffer) => void
  /** Exactly once, unless cancelled. */
  readonly end: (end: StreamEnd) => void
}

/** A running stream in the consumer's hands. */
export interface StreamControl {
  readonly pause: () => void
  readonly resume: () => void
  /** Aborts the upstream call and tells what had been generated. `end` is not called any more. */
  readonly cancel: () => StreamEnd
}

/**
 * A stream whose first event has arrived: retries and fallbacks are over. Whoever holds it must `start` it once or
 * `cancel` it; one that is left alone is aborted after the deployment's `stream_timeout`.
 */
export interface StreamedAnswer {
  readonly _tag: "Streamed"
  readonly served: Served
  readonly contentType: string
  /** Gives up a stream that was never started. */
  readonly cancel: () => StreamEnd
  readonly start: (consumer: StreamConsumer) => StreamControl
}

export type Answer = BufferedAnswer | StreamedAnswer

/**
 * Deployments, their health, retries and fallbacks (decisions.md, section 7). Everything that can be tried again is
 * tried before the first byte of an answer.
 */
export class ProviderRouter extends Context.Service<
  ProviderRouter,
  {
    /** The group behind a public name; undefined: no such model. Synchronous: a map look-up. */
    readonly find: (model: string) => RoutableModel | undefined
    /**
     * Sends a call. Fails with `model_not_found`, `unsupported_model`, `unsupported_parameter`, the upstream's own 400 as
     * `invalid_request_error`, its 429 as `rate_limit_exceeded`, `upstream_error`, `upstream_timeout` or `overloaded`.
     * Interruption cancels the upstream.
     */
    readonly route: (call: UpstreamCall) => Effect.Effect<Answer, GatewayError>
    /** The same for callers that are no fiber: answers once, now or later. Returns what cancels the upstream. */
    readonly begin: (call: UpstreamCall, answered: (exit: Exit.Exit<Answer, GatewayError>) => void) => () => void
    /** The state of every deployment, for `/readyz`, the model list and metrics. */
    readonly health: () => ReadonlyArray<DeploymentHealth>
    /** Calls back, synchronously, when a deployment is taken out or has come back (`model.unhealthy`, `model.recovered`). */
    readonly onHealthChange: (listener: (change: HealthChange) => void) => Effect.Effect<void>
  }
>()("sluice/inference/ProviderRouter") {}

/** A deployment changed sides. */
export interface HealthChange {
  readonly deploymentId: string
  readonly modelName: string
  readonly state: "unhealthy" | "recovered"
  /** The last failure's message for `unhealthy`, fit for operators' eyes: no credential, no header. */
  readonly reason: string | undefined
}

/** A deployment as operators see it. */
export interface DeploymentHealth {
  readonly deploymentId: string
  readonly modelName: string
  readonly provider: string
  readonly upstreamModel: string
  /** `unusable`: its settings are wrong or incomplete, see `problem`. */
  readonly state: "healthy" | "unhealthy" | "probing" | "unusable"
  /** What is wrong with the settings, or the last failure; null: nothing. */
  readonly problem: string | null
  readonly inFlight: number
  /** Of the last answer, in milliseconds; null before the first. */
  readonly responseTimeMs: number | null
  /** Unix milliseconds of the last answer or failure; null before the first. */
  readonly lastCheckedAt: number | null
}
