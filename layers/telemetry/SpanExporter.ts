/** Finished spans on their way to a collector: queued within a bound, sent in batches, one at a time. */
import { Data, Effect, Latch, type Scope } from "effect"
import { Agent, request } from "undici"
import { countDroppedSpans } from "#domain/telemetry.ts"
import { encodeJson, encodeProtobuf, type Sender } from "#layers/telemetry/otlp-spans.ts"
import { Protobuf } from "#layers/telemetry/Protobuf.ts"
import type { RecordedSpan } from "#layers/telemetry/spans.ts"

/** What a collector that is slow or away may hold up; what comes on top is dropped. */
const mostQueued = 8192
/** Encoding one takes the event loop less than a millisecond. */
const batchSize = 512
/** How long a span may wait for a batch to fill. */
const longestWait = "1 second"
/** How long what is left may take when the process ends. */
const lastWait = "3 seconds"
/** Milliseconds for a connection, and for an answer. */
const patience = 10_000

export interface SpanExporterOptions {
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
  readonly protocol: "http/protobuf" | "http/json"
  readonly sender: Sender
}

class NotTaken extends Data.TaggedError("NotTaken")<{ readonly why: unknown }> {}

/**
 * Takes finished spans. Never blocks. Speaks undici without the library's client around it, which takes 7 ms of the
 * event loop for the body of a batch.
 */
export const makeSpanExporter = Effect.fnUntraced(function* (
  options: SpanExporterOptions
): Effect.fn.Return<(span: RecordedSpan) => void, never, Scope.Scope> {
  const context = yield* Effect.context<never>()
  const full = yield* Latch.make(false)
  const queue: Array<RecordedSpan> = []
  // One batch is under way at a time, so that one buffer does for all of them.
  const written = new Protobuf()
  const json = options.protocol === "http/json"
  const headers = { ...options.headers, "content-type": json ? "application/json" : "application/x-protobuf" }
  const dispatcher = yield* Effect.acquireRelease(
    Effect.sync(
      () => new Agent({ connections: 1, connectTimeout: patience, headersTimeout: patience, bodyTimeout: patience })
    ),
    (agent) => Effect.promise(() => agent.destroy())
  )

  const post = (spans: ReadonlyArray<RecordedSpan>) =>
    Effect.tryPromise({
      try: async (signal) => {
        const body = json ? encodeJson(options.sender, spans) : encodeProtobuf(options.sender, spans, written)
        const response = await request(options.url, { dispatcher, method: "POST", headers, body, signal })
        await response.body.dump()
        if (response.statusCode >= 300) throw new Error(`the collector answered ${response.statusCode}`)
      },
      catch: (why) => new NotTaken({ why })
    })

  const sendBatch = Effect.suspend(() => {
    const spans = queue.splice(0, batchSize)
    if (spans.length === 0) return Effect.void
    return post(spans).pipe(
      Effect.onInterrupt(() => Effect.sync(() => queue.unshift(...spans))),
      // Sent again they would only take the place of later ones.
      Effect.catch(({ why }) => {
        countDroppedSpans(spans.length, context)
        return Effect.logDebug("The collector did not take spans", why)
      })
    )
  })

  const sendWhile = (least: number) =>
    Effect.whileLoop({ while: () => queue.length >= least, body: () => sendBatch, step: () => undefined })

  yield* Effect.addFinalizer(() => Effect.timeoutOption(Effect.interruptible(sendWhile(1)), lastWait))
  yield* Effect.raceFirst(full.await, Effect.sleep(longestWait)).pipe(
    // A first batch of whatever is there, further ones only when they are full: requests cost more than spans.
    Effect.andThen(sendBatch),
    Effect.andThen(sendWhile(batchSize)),
    Effect.andThen(Effect.sync(() => queue.length < batchSize && full.closeUnsafe())),
    Effect.forever,
    Effect.forkScoped
  )

  return (span) => {
    if (queue.length >= mostQueued) return countDroppedSpans(1, context)
    queue.push(span)
    if (queue.length >= batchSize) full.openUnsafe()
  }
})
