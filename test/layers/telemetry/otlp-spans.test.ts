/** The encoder of spans against the library's, byte for byte. */
import { Effect } from "effect"
import { OtlpResource, OtlpSerialization } from "effect/observability"
import { assert, describe, it } from "vitest"
import { JsonBatch, ProtobufBatch, type Sender, tracesOf } from "#layers/telemetry/otlp-spans.ts"
import { makeTracing, type RecordedSpan } from "#layers/telemetry/spans.ts"
import type { Span } from "#services/telemetry/Tracing.ts"

const sender: Sender = {
  resource: OtlpResource.make({
    serviceName: "gateway-under-test",
    serviceVersion: "1.2.3",
    attributes: { "deployment.environment.name": "süd", shards: 3, ratio: 0.5, on: true }
  }),
  scope: "sluice",
  version: "0.1.0"
}

const recorded = (tell: (root: Span) => void, traceparent?: string, tracestate?: string) => {
  const spans: Array<RecordedSpan> = []
  const tracing = makeTracing({
    sampler: () => true,
    propagated: true,
    now: () => 1_763_728_000_123,
    finished: (span) => void spans.push(span)
  })
  const root = tracing.start("POST /v1/chat/completions", "server", traceparent, tracestate)
  tell(root)
  root.end()
  return spans
}

const byLibrary = (spans: ReadonlyArray<RecordedSpan>): Uint8Array =>
  Effect.runSync(
    Effect.provide(
      Effect.map(OtlpSerialization.OtlpSerialization, (serialization) => {
        const body = serialization.traces(tracesOf(sender, spans) as never)
        if (body._tag !== "Uint8Array") throw new Error(`a body of ${body._tag}`)
        return body.body
      }),
      OtlpSerialization.layerProtobuf
    )
  )

const batch = new ProtobufBatch(sender)
/** One batch for all: what one left must not show in the next. */
const encoded = (spans: ReadonlyArray<RecordedSpan>): Buffer => {
  batch.clear()
  for (const span of spans) batch.add(span)
  assert.strictEqual(batch.count(), spans.length)
  return Buffer.from(batch.body())
}

const json = (spans: ReadonlyArray<RecordedSpan>) => {
  const batch = new JsonBatch(sender)
  for (const span of spans) batch.add(span)
  return JSON.parse(batch.body())
}

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03"

const sample = (root: Span): void => {
  root.set("text", "ünïcode 🦀")
  root.set("empty", "")
  root.set("long", "é".repeat(1000))
  root.set("half", `${"a".repeat(255)}🦀`)
  root.set("lone", "\ud800")
  root.set("zero", 0)
  root.set("small", 200)
  root.set("large", Number.MAX_SAFE_INTEGER)
  root.set("fraction", 0.25)
  root.set("yes", true)
  root.set("no", false)
  root.set("nothing", null)
  root.measure("whole", 3)
  const child = root.child("attempt", "client")
  child.event("first")
  child.event("second", { "a.b": "c", n: 1 }, 5)
  child.error("upstream_error", true)
  child.end()
  child.set("late", 1)
}

describe("spans in OTLP", () => {
  it("are encoded as the library encodes them", () => {
    for (const given of [[], [parent, "a=1,b=2"]] as const) {
      const spans = recorded(sample, ...given)
      assert.deepStrictEqual(encoded(spans), Buffer.from(byLibrary(spans)))
    }
  })

  it("of every size, so that every length of a length is met", () => {
    for (const count of [1, 2, 30, 700, 3]) {
      const spans = recorded((root) => {
        for (let i = 1; i < count; i++) {
          const child = root.child("x".repeat(i % 300), "internal")
          for (let at = 0; at < i % 40; at++) child.set(`name.${at}`, "v".repeat(at * 5))
          child.end()
        }
      })
      assert.deepStrictEqual(encoded(spans), Buffer.from(byLibrary(spans)))
    }
  })

  it("bound their texts, events, attributes and number", () => {
    const spans = recorded((root) => {
      for (let i = 0; i < 500; i++) {
        root.set(`name.${i}`, "x".repeat(10_000))
        root.event("again")
      }
      for (let i = 0; i < 5000; i++) root.child("one", "internal").end()
    })
    assert.strictEqual(spans.length, 1000)
    const root = spans.at(-1)!
    assert.strictEqual(root.attributes.length, 256)
    assert.strictEqual(root.events?.length, 128)
    const [first] = tracesOf(sender, [root]).resourceSpans[0]!.scopeSpans[0]!.spans
    assert.strictEqual(first!.attributes[0]!.value.stringValue?.length, 256)
  })

  it("are the same in JSON", () => {
    for (const spans of [[], recorded(sample), recorded(sample, parent, "a=1")]) {
      assert.deepStrictEqual(json(spans), JSON.parse(JSON.stringify(tracesOf(sender, spans))))
    }
  })

  it("say whose children they are, and when", () => {
    const spans = recorded(sample, parent, "a=1")
    const [child, root] = json(spans).resourceSpans[0].scopeSpans[0].spans
    assert.include(root, { traceId: "0af7651916cd43dd8448eb211c80319c", parentSpanId: "b7ad6b7169203331", kind: 2 })
    assert.include(root, { traceState: "a=1", flags: 0x303, name: "POST /v1/chat/completions" })
    assert.include(child, { traceId: root.traceId, parentSpanId: root.spanId, kind: 3, flags: 0x103 })
    assert.deepStrictEqual([child.status, root.status], [{ code: 2 }, { code: 0 }])
    assert.deepInclude(child.attributes, { key: "error.type", value: { stringValue: "upstream_error" } })
    for (const { endTimeUnixNano, startTimeUnixNano } of [child, root]) {
      assert.match(startTimeUnixNano, /^17637280001\d{8}$/)
      assert.isTrue(BigInt(endTimeUnixNano) >= BigInt(startTimeUnixNano))
    }
  })

  it("of a trace that is not sampled are not kept, and whoever is called hears so", () => {
    const spans: Array<RecordedSpan> = []
    const off = {
      sampler: () => false,
      propagated: true,
      now: () => 0,
      finished: (span: RecordedSpan) => void spans.push(span)
    }
    const root = makeTracing(off).start("GET", "server", parent)
    const child = root.child("attempt", "client")
    assert.isFalse(child.recording)
    const headers = child.propagate({ accept: "*/*" })
    assert.match(headers["traceparent"] ?? "", /^00-0af7651916cd43dd8448eb211c80319c-[0-9a-f]{16}-02$/)
    child.end()
    root.end()
    assert.deepStrictEqual(spans, [])
    const given = { accept: "*/*" }
    assert.strictEqual(
      makeTracing({ ...off, propagated: false })
        .start("GET", "server", parent)
        .propagate(given),
      given
    )
  })
})
