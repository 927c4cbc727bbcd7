/**
 * Finished spans in the words of OTLP 1: as protobuf, and as JSON. The library's encoder takes 40 to 100 µs a span, which
 * is as much for a call's spans as the call itself; this one takes 1.
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

export const encodeJson = (sender: Sender, spans: ReadonlyArray<RecordedSpan>): string =>
  JSON.stringify(tracesOf(sender, spans))

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

/** `ExportTraceServiceRequest` as protobuf: bytes of `out`, which are good until it is written to again. */
export const encodeProtobuf = (sender: Sender, spans: ReadonlyArray<RecordedSpan>, out = new Protobuf()): Buffer => {
  out.reset()
  const resourceSpans = out.open(1)
  const resource = out.open(1)
  for (const { key, value } of sender.resource.attributes) {
    const { boolValue, doubleValue, intValue, stringValue } = value
    const plain = stringValue ?? boolValue ?? (intValue == null ? undefined : Number(intValue)) ?? doubleValue
    if (plain !== undefined && plain !== null) writeAttribute(out, 1, key, plain)
  }
  out.close(resource)
  const scopeSpans = out.open(2)
  const scope = out.open(1)
  out.text(1, sender.scope)
  out.text(2, sender.version)
  out.close(scope)
  for (const span of spans) writeSpan(out, span)
  out.close(scopeSpans)
  out.close(resourceSpans)
  return out.bytes()
}
