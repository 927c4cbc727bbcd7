/**
 * Finished spans in the words of OTLP 1: as protobuf, and as JSON. The library's encoder takes 40 to 100 µs a span, which
 * is more for a call's spans than the call itself; this one takes 1.
 */
import type { OtlpResource } from "effect/observability"
import type { Fraction, RecordedSpan, SpanEvent } from "#layers/telemetry/spans.ts"
import { Protobuf } from "#layers/telemetry/Protobuf.ts"
import type { AttributeValue, SpanKind } from "#services/telemetry/Tracing.ts"

/** UTF-16 code units of a text: names come from outside, and none of the gateway's own is longer. */
const longestText = 256

const kinds: Readonly<Record<SpanKind, number>> = { internal: 1, server: 2, client: 3 }

/** An unset status is no verdict; the conventions keep `Ok` for people. */
const statusUnset = 0
const statusError = 2

/** Sampled, and it is known whether the parent is of another program, */
const flags = 0x101
/** which it is. */
const remoteFlags = 0x301

/** Who sends the spans. */
export interface Sender {
  readonly resource: OtlpResource.Resource
  readonly scope: string
  readonly version: string
}

const bounded = (text: string): string =>
  text.length > longestText
    ? text.slice(0, longestText).toWellFormed()
    : text.isWellFormed()
      ? text
      : text.toWellFormed()

const micros = (millis: number): number => Math.round(millis * 1000)

/** Microseconds as a text of nanoseconds: JSON has no numbers of that size. */
const nanosText = (millis: number): string => `${micros(millis)}000`

type Value = string | AttributeValue | Fraction

const jsonValue = (value: Value) => {
  switch (typeof value) {
    case "string":
      return { stringValue: bounded(value).toWellFormed() }
    case "boolean":
      return { boolValue: value }
    case "number":
      return Number.isSafeInteger(value) && value >= 0 ? { intValue: value } : { doubleValue: value }
    default:
      return { doubleValue: value.value }
  }
}

const jsonAttributes = (pairs: ReadonlyArray<Value>) => {
  const attributes = []
  for (let at = 0; at < pairs.length; at += 2) {
    attributes.push({ key: String(pairs[at]), value: jsonValue(pairs[at + 1]!) })
  }
  return attributes
}

const pairsOf = ({ attributes }: SpanEvent): ReadonlyArray<Value> => Object.entries(attributes).flat()

const flagsOf = ({ parentId, trace }: RecordedSpan): number =>
  (parentId !== undefined && parentId === trace.remoteId ? remoteFlags : flags) + (trace.random ? 2 : 0)

const attributesOf = (span: RecordedSpan): ReadonlyArray<Value> =>
  span.errorType === undefined ? span.attributes : [...span.attributes, "error.type", span.errorType]

const jsonSpan = (span: RecordedSpan) => ({
  traceId: span.trace.id,
  spanId: span.id,
  ...(span.trace.state === undefined ? {} : { traceState: span.trace.state }),
  parentSpanId: span.parentId,
  name: bounded(span.name).toWellFormed(),
  kind: kinds[span.kind],
  startTimeUnixNano: nanosText(span.startedAt),
  endTimeUnixNano: nanosText(span.endedAt ?? span.startedAt),
  attributes: jsonAttributes(attributesOf(span)),
  droppedAttributesCount: 0,
  events: (span.events ?? []).map((event) => ({
    timeUnixNano: nanosText(event.at),
    name: event.name,
    attributes: jsonAttributes(pairsOf(event)),
    droppedAttributesCount: 0
  })),
  droppedEventsCount: 0,
  links: [],
  droppedLinksCount: 0,
  status: { code: span.failed ? statusError : statusUnset },
  flags: flagsOf(span)
})

/** `ExportTraceServiceRequest` as JSON's values. */
export const tracesOf = (sender: Sender, spans: ReadonlyArray<RecordedSpan>) => ({
  resourceSpans: [
    {
      resource: sender.resource,
      scopeSpans: [{ scope: { name: sender.scope, version: sender.version }, spans: spans.map(jsonSpan) }]
    }
  ]
})

/**
 * Finished spans, put into words at once: objects that wait for their batch would outlive the young generation, and cost
 * more in garbage collection than their encoding.
 */
export interface SpanBatch {
  readonly contentType: string
  readonly count: () => number
  /** About as many bytes. */
  readonly size: () => number
  readonly add: (span: RecordedSpan) => void
  /** An `ExportTraceServiceRequest`, good until `clear`. */
  readonly body: () => string | Buffer
  readonly clear: () => void
}

export class JsonBatch implements SpanBatch {
  readonly contentType = "application/json"
  readonly #frame: readonly [before: string, after: string]
  #spans: Array<string> = []
  #size = 0

  constructor(sender: Sender) {
    const empty = JSON.stringify(tracesOf(sender, []))
    const at = empty.lastIndexOf("[]") + 1
    this.#frame = [empty.slice(0, at), empty.slice(at)]
  }

  count(): number {
    return this.#spans.length
  }

  add(span: RecordedSpan): void {
    const text = JSON.stringify(jsonSpan(span))
    this.#size += text.length
    this.#spans.push(text)
  }

  size(): number {
    return this.#size
  }

  body(): string {
    return `${this.#frame[0]}${this.#spans.join(",")}${this.#frame[1]}`
  }

  clear(): void {
    this.#spans = []
    this.#size = 0
  }
}

const writeAttribute = (out: Protobuf, field: number, name: string, value: Value): void => {
  const attribute = out.open(field)
  out.text(1, name)
  const any = out.open(2)
  switch (typeof value) {
    case "string":
      out.text(1, bounded(value))
      break
    case "boolean":
      out.whole(2, value ? 1 : 0)
      break
    case "number":
      if (Number.isSafeInteger(value) && value >= 0) out.whole(3, value)
      else out.double(4, value)
      break
    default:
      out.double(4, value.value)
  }
  out.close(any)
  out.close(attribute)
}

const writeAttributes = (out: Protobuf, field: number, pairs: ReadonlyArray<Value>): void => {
  for (let at = 0; at < pairs.length; at += 2) writeAttribute(out, field, String(pairs[at]), pairs[at + 1]!)
}

const writeSpan = (out: Protobuf, span: RecordedSpan): void => {
  const message = out.open(2)
  out.hex(1, span.trace.id)
  out.hex(2, span.id)
  if (span.trace.state !== undefined) out.text(3, span.trace.state)
  if (span.parentId !== undefined) out.hex(4, span.parentId)
  out.text(5, bounded(span.name))
  out.whole(6, kinds[span.kind])
  out.nanoseconds(7, micros(span.startedAt))
  out.nanoseconds(8, micros(span.endedAt ?? span.startedAt))
  writeAttributes(out, 9, span.attributes)
  if (span.errorType !== undefined) writeAttribute(out, 9, "error.type", span.errorType)
  for (const event of span.events ?? []) {
    const written = out.open(11)
    out.nanoseconds(1, micros(event.at))
    out.text(2, event.name)
    writeAttributes(out, 3, pairsOf(event))
    out.close(written)
  }
  const status = out.open(15)
  out.whole(3, span.failed ? statusError : statusUnset)
  out.close(status)
  out.flags(16, flagsOf(span))
  out.close(message)
}

const encodedSender = ({ resource, scope, version }: Sender) => {
  const out = new Protobuf()
  const attributes = out.open(1)
  for (const { key, value } of resource.attributes) {
    const { boolValue, doubleValue, intValue, stringValue } = value
    const plain = stringValue ?? boolValue ?? (intValue == null ? undefined : Number(intValue)) ?? doubleValue
    if (plain !== undefined && plain !== null) writeAttribute(out, 1, key, plain)
  }
  out.close(attributes)
  const encodedResource = Buffer.from(out.bytes())
  out.reset()
  const named = out.open(1)
  out.text(1, scope)
  out.text(2, version)
  out.close(named)
  return { resource: encodedResource, scope: Buffer.from(out.bytes()) }
}

/** Tag and length of a message that holds a message. */
const mostPrefix = 16

export class ProtobufBatch implements SpanBatch {
  readonly contentType = "application/x-protobuf"
  readonly #sender: { readonly resource: Buffer; readonly scope: Buffer }
  readonly #room: number
  readonly #spans = new Protobuf()
  readonly #prefix = new Protobuf()
  #count = 0

  constructor(sender: Sender) {
    this.#sender = encodedSender(sender)
    this.#room = this.#sender.resource.length + this.#sender.scope.length + mostPrefix
    this.clear()
  }

  count(): number {
    return this.#count
  }

  add(span: RecordedSpan): void {
    writeSpan(this.#spans, span)
    this.#count += 1
  }

  size(): number {
    return this.#spans.size
  }

  body(): Buffer {
    const { resource, scope } = this.#sender
    const prefix = this.#prefix
    const spans = this.#spans.size - this.#room
    // Lengths stand before what they count, so that the innermost is worked out first.
    prefix.reset()
    prefix.header(2, scope.length + spans)
    const inner = resource.length + prefix.size + scope.length + spans
    prefix.reset()
    prefix.header(1, inner)
    prefix.raw(resource)
    prefix.header(2, scope.length + spans)
    prefix.raw(scope)
    const from = this.#room - prefix.size
    this.#spans.put(prefix.bytes(), from)
    return this.#spans.bytes(from)
  }

  clear(): void {
    this.#spans.reset(this.#room)
    this.#count = 0
  }
}
