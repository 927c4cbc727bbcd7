/** Finished spans on their way to a collector: queued within a bound, sent in batches, one at a time. */
import { Data, Effect, Latch, type Scope } from "effect"
import { Agent, request } from "undici"
import { countDroppedSpans } from "#domain/telemetry.ts"
import { JsonBatch, ProtobufBatch, type Sender, type SpanBatch } from "#layers/telemetry/otlp-spans.ts"
import type { RecordedSpan } from "#layers/telemetry/spans.ts"

/** What a collector that is slow or away may hold up; what comes on top is dropped. */
const mostWaiting = 8192
const mostWaitingBytes = 8 * 1024 * 1024
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
 * Takes finished spans. Never blocks. Speaks undici itself: a batch is one write of bytes that are there already.
 */
export const makeSpanExporter = Effect.fnUntraced(function* (
  options: SpanExporterOptions
): Effect.fn.Return<(span: RecordedSpan) => void, never, Scope.Scope> {
  const context = yield* Effect.context<never>()
  const full = yield* Latch.make(false)
  const empty = (): SpanBatch =>
    options.protocol === "http/json" ? new JsonBatch(options.sender) : new ProtobufBatch(options.sender)
  let filling = empty()
  let leaving = empty()
  const headers = { ...options.headers, "content-type": filling.contentType }
  const dispatcher = yield* Effect.acquireRelease(
    Effect.sync(
      () => new Agent({ connections: 1, connectTimeout: patience, headersTimeout: patience, bodyTimeout: patience })
    ),
    (agent) => Effect.promise(() => agent.destroy())
  )

  const post = Effect.tryPromise({
    try: async (signal) => {
      const body = leaving.body()
      const response = await request(options.url, { dispatcher, method: "POST", headers, body, signal })
      await response.body.dump()
      if (response.statusCode >= 300) throw new Error(`the collector answered ${response.statusCode}`)
    },
    catch: (why) => new NotTaken({ why })
  })

  /** A batch whose sending was interrupted is still there to be sent. */
  const sendBatch = Effect.suspend(() => {
    if (leaving.count() === 0) [filling, leaving] = [leaving, filling]
    if (leaving.count() === 0) return Effect.void
    return post.pipe(
      // Sent again they would only take the place of later ones.
      Effect.catch(({ why }) => {
        countDroppedSpans(leaving.count(), context)
        return Effect.logDebug("The collector did not take spans", why)
      }),
      Effect.andThen(Effect.sync(() => leaving.clear()))
    )
  })

  const sendWhile = (least: number) =>
    Effect.whileLoop({ while: () => filling.count() >= least, body: () => sendBatch, step: () => undefined })

  yield* Effect.addFinalizer(() =>
    Effect.timeoutOption(Effect.interruptible(Effect.andThen(sendBatch, sendWhile(1))), lastWait)
  )
  yield* Effect.raceFirst(full.await, Effect.sleep(longestWait)).pipe(
    // A first batch of whatever is there, further ones only when they are full: requests cost more than spans.
    Effect.andThen(sendBatch),
    Effect.andThen(sendWhile(batchSize)),
    Effect.andThen(Effect.sync(() => filling.count() < batchSize && full.closeUnsafe())),
    Effect.forever,
    Effect.forkScoped
  )

  return (span) => {
    if (filling.count() >= mostWaiting || filling.size() >= mostWaitingBytes) return countDroppedSpans(1, context)
    filling.add(span)
    if (filling.count() >= batchSize) full.openUnsafe()
  }
})
