import { Context } from "effect"

export type SpanKind = "server" | "client" | "internal"

export type AttributeValue = string | number | boolean

/**
 * A piece of a trace that is under way. Its methods neither block nor throw, and do nothing on a trace that is not
 * recorded, nor after `end`. Names and values are OpenTelemetry's semantic conventions where those have a word; never a
 * prompt, an answer, a header or a credential.
 */
export interface Span {
  /** Whether anybody will read what is said of it. */
  readonly recording: boolean
  /** A span within this one. */
  readonly child: (name: string, kind: SpanKind) => Span
  readonly rename: (name: string) => void
  /** Each name once. Nothing is said of null and undefined. */
  readonly set: (name: string, value: AttributeValue | null | undefined) => void
  /** As `set`, for numbers that may have a fraction, so that an attribute is of one type always. */
  readonly measure: (name: string, value: number) => void
  /** At this moment, or that of `agoMs` milliseconds ago. */
  readonly event: (name: string, attributes?: Readonly<Record<string, AttributeValue>>, agoMs?: number) => void
  /** `error.type`: the code of the envelope; the first counts. Not every refusal is a failure of the span: `failed` says. */
  readonly error: (type: string, failed: boolean) => void
  readonly end: () => void
  /** The headers of a request that is made within this span, with those of W3C Trace Context. */
  readonly propagate: (headers: Readonly<Record<string, string>>) => Readonly<Record<string, string>>
}

export interface TracingShape {
  /**
   * The first span of this program in a trace: a child of what the headers name (W3C Trace Context, malformed ones are
   * none), or the root of a new one.
   */
  readonly start: (name: string, kind: SpanKind, traceparent?: string, tracestate?: string) => Span
}

/** What is under way, where spans go from fiber to fiber. Calls are handed theirs: a look into the context costs more. */
export const ParentSpan = Context.Reference<Span | undefined>("sluice/telemetry/ParentSpan", {
  defaultValue: () => undefined
})

/** Who records spans; undefined: nobody, and nothing is paid for it. */
export const Tracing = Context.Reference<TracingShape | undefined>("sluice/telemetry/Tracing", {
  defaultValue: () => undefined
})
