/** Spans as they are kept until they are sent: plain objects, put into words by the exporter. */
import { randomFillSync } from "node:crypto"
import type { Sampler } from "#domain/sampling.ts"
import { type RemoteParent, remoteParentOf, traceparentOf } from "#domain/trace-context.ts"
import type { AttributeValue, Span, SpanKind, TracingShape } from "#services/telemetry/Tracing.ts"

/** A trace that makes more spans than this is cut: a pipeline may have a hundred thousand steps. */
const mostSpans = 1000
/** As OpenTelemetry bounds them. */
const mostEvents = 128
const mostAttributes = 128

/** A number that may have a fraction, whatever value it has now. */
export class Fraction {
  readonly value: number
  constructor(value: number) {
    this.value = value
  }
}

export interface SpanEvent {
  readonly name: string
  /** Unix milliseconds, with a fraction. */
  readonly at: number
  readonly attributes: Readonly<Record<string, AttributeValue>>
}

const pool = Buffer.allocUnsafe(4096)
let used = pool.length

const randomHex = (bytes: number): string => {
  if (used + bytes > pool.length) {
    randomFillSync(pool)
    used = 0
  }
  const hex = pool.toString("hex", used, used + bytes)
  used += bytes
  // The one value that names nothing.
  return /^0+$/.test(hex) ? randomHex(bytes) : hex
}

/** What the spans of one trace share in this process. */
export class Trace {
  readonly id: string
  /** The span of another program that this one's first is a child of. */
  readonly remoteId: string | undefined
  readonly state: string | undefined
  readonly sampled: boolean
  readonly random: boolean
  readonly propagated: boolean
  readonly #finished: (span: RecordedSpan) => void
  /** Unix milliseconds where the monotonic clock is 0: the wall clock may jump, the spans of a trace must not. */
  readonly #epoch: number
  #spans = 0

  constructor(id: string, parent: RemoteParent | undefined, options: TracingOptions) {
    this.id = id
    this.remoteId = parent?.spanId
    this.state = parent?.state
    this.sampled = options.sampler(id, parent)
    this.random = parent?.random ?? false
    this.propagated = options.propagated
    this.#finished = options.finished
    this.#epoch = options.now() - performance.now()
  }

  now(): number {
    return this.#epoch + performance.now()
  }

  span(name: string, kind: SpanKind, parentId: string | undefined): Span {
    this.#spans += 1
    return this.sampled && this.#spans <= mostSpans
      ? new RecordedSpan(this, name, kind, parentId)
      : new SilentSpan(this)
  }

  finish(span: RecordedSpan): void {
    this.#finished(span)
  }

  headers(spanId: string, sampled: boolean, given: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
    if (!this.propagated) return given
    const headers: Record<string, string> = { ...given }
    headers["traceparent"] = traceparentOf(this.id, spanId, sampled, this.random)
    if (this.state !== undefined) headers["tracestate"] = this.state
    return headers
  }
}

export class RecordedSpan implements Span {
  readonly recording = true
  readonly trace: Trace
  readonly id = randomHex(8)
  readonly parentId: string | undefined
  readonly kind: SpanKind
  name: string
  /** Unix milliseconds, with a fraction. */
  readonly startedAt: number
  endedAt: number | undefined
  /** Names and values in turns. */
  readonly attributes: Array<string | AttributeValue | Fraction> = []
  events: Array<SpanEvent> | undefined
  errorType: string | undefined
  failed = false

  constructor(trace: Trace, name: string, kind: SpanKind, parentId: string | undefined) {
    this.trace = trace
    this.name = name
    this.kind = kind
    this.parentId = parentId
    this.startedAt = trace.now()
  }

  child(name: string, kind: SpanKind): Span {
    return this.trace.span(name, kind, this.id)
  }

  rename(name: string): void {
    if (this.endedAt === undefined) this.name = name
  }

  #add(name: string, value: AttributeValue | Fraction): void {
    if (this.endedAt === undefined && this.attributes.length < 2 * mostAttributes) this.attributes.push(name, value)
  }

  set(name: string, value: AttributeValue | null | undefined): void {
    if (value !== undefined && value !== null) this.#add(name, value)
  }

  measure(name: string, value: number): void {
    this.#add(name, new Fraction(value))
  }

  event(name: string, attributes: Readonly<Record<string, AttributeValue>> = {}, agoMs = 0): void {
    if (this.endedAt !== undefined) return
    this.events ??= []
    if (this.events.length < mostEvents) this.events.push({ name, at: this.trace.now() - agoMs, attributes })
  }

  error(type: string, failed: boolean): void {
    if (this.endedAt !== undefined || this.errorType !== undefined) return
    this.errorType = type
    this.failed = failed
  }

  end(): void {
    if (this.endedAt !== undefined) return
    this.endedAt = this.trace.now()
    this.trace.finish(this)
  }

  propagate(headers: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
    return this.trace.headers(this.id, true, headers)
  }
}

/** A span that nobody reads. It stands for all below it, and tells upstreams so. */
export class SilentSpan implements Span {
  readonly recording = false
  readonly #trace: Trace
  #id: string | undefined

  constructor(trace: Trace) {
    this.#trace = trace
  }

  child(): Span {
    return this
  }

  rename(): void {}
  set(): void {}
  measure(): void {}
  event(): void {}
  error(): void {}
  end(): void {}

  propagate(headers: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
    this.#id ??= randomHex(8)
    return this.#trace.headers(this.#id, false, headers)
  }
}

export interface TracingOptions {
  readonly sampler: Sampler
  /** Whether W3C Trace Context is read from requests and sent to upstreams. */
  readonly propagated: boolean
  /** Unix milliseconds. */
  readonly now: () => number
  readonly finished: (span: RecordedSpan) => void
}

export const makeTracing = (options: TracingOptions): TracingShape => ({
  start: (name, kind, traceparent, tracestate) => {
    const parent = options.propagated ? remoteParentOf(traceparent, tracestate) : undefined
    return new Trace(parent?.traceId ?? randomHex(16), parent, options).span(name, kind, parent?.spanId)
  }
})
