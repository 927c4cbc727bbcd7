/** Finished spans on their way to a collector: queued within a bound, sent in batches, one at a time. */
import { Effect, Latch, type Scope } from "effect"
import { HttpBody, HttpClient, HttpClientRequest } from "effect/http"
import { countDroppedSpans } from "#domain/telemetry.ts"
import { encodeJson, encodeProtobuf, type Sender } from "#layers/telemetry/otlp-spans.ts"
import type { RecordedSpan } from "#layers/telemetry/spans.ts"

/** What a collector that is slow or away may hold up; what comes on top is dropped. */
const mostQueued = 8192
/** Encoding one takes the event loop a millisecond. */
const batchSize = 512
/** How long a span may wait for a batch to fill. */
const longestWait = "1 second"
/** How long what is left may take when the process ends. */
const lastWait = "3 seconds"

export interface SpanExporterOptions {
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
  readonly protocol: "http/protobuf" | "http/json"
  readonly sender: Sender
}

/** Takes finished spans. Never blocks. */
export const makeSpanExporter = Effect.fnUntraced(function* (
  options: SpanExporterOptions
): Effect.fn.Return<(span: RecordedSpan) => void, never, HttpClient.HttpClient | Scope.Scope> {
  const context = yield* Effect.context<never>()
  const client = HttpClient.filterStatusOk(yield* HttpClient.HttpClient)
  const request = HttpClientRequest.post(options.url, { headers: options.headers })
  const full = yield* Latch.make(false)
  const queue: Array<RecordedSpan> = []

  const bodyOf = (spans: ReadonlyArray<RecordedSpan>) =>
    options.protocol === "http/json"
      ? HttpBody.text(encodeJson(options.sender, spans), "application/json")
      : HttpBody.uint8Array(encodeProtobuf(options.sender, spans), "application/x-protobuf")

  const sendBatch = Effect.suspend(() => {
    const spans = queue.splice(0, batchSize)
    if (spans.length === 0) return Effect.void
    return client.execute(HttpClientRequest.setBody(request, bodyOf(spans))).pipe(
      Effect.flatMap((response) => response.arrayBuffer),
      Effect.asVoid,
      Effect.onInterrupt(() => Effect.sync(() => queue.unshift(...spans))),
      Effect.provideService(HttpClient.TracerPropagationEnabled, false),
      Effect.withTracerEnabled(false),
      // Sent again they would only take the place of later ones.
      Effect.catchCause((cause) => {
        countDroppedSpans(spans.length, context)
        return Effect.logDebug("The collector did not take spans", cause)
      })
    )
  })

  const sendAll = Effect.whileLoop({ while: () => queue.length > 0, body: () => sendBatch, step: () => undefined })

  yield* Effect.addFinalizer(() => Effect.timeoutOption(Effect.interruptible(sendAll), lastWait))
  yield* Effect.raceFirst(full.await, Effect.sleep(longestWait)).pipe(
    Effect.andThen(
      Effect.suspend(() => {
        full.closeUnsafe()
        return sendAll
      })
    ),
    Effect.forever,
    Effect.forkScoped
  )

  return (span) => {
    if (queue.length >= mostQueued) return countDroppedSpans(1, context)
    queue.push(span)
    if (queue.length === batchSize) full.openUnsafe()
  }
})
