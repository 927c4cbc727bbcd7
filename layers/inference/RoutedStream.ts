import type { GatewayError } from "#domain/errors.ts"
import type { Usage } from "#domain/usage.ts"
import type { Deployment } from "#layers/inference/Deployment.ts"
import type {
  Served,
  StreamConsumer,
  StreamControl,
  StreamedAnswer,
  StreamEnd
} from "#services/inference/ProviderRouter.ts"
import type { StreamDecoder } from "#services/inference/Wire.ts"

/** In bytes, of a stream whose consumer has not begun to take it. */
const largestPending = 256 * 1024

/** Where a stream comes from. */
export interface StreamSource {
  /** Whether more of it may come. */
  readonly streaming: boolean
  readonly pause: () => void
  readonly resume: () => void
  /** The silence until now was the consumer's: its deadline starts anew. */
  readonly forgiveSilence: () => void
  /** The consumer has gone: whatever is in flight ends now. `usage` is what had been generated. */
  readonly abandon: (usage: Usage | undefined) => void
}

/** A stream that has begun, as its consumer sees it: held until somebody takes it, then passed on as it comes. */
export class RoutedStream implements StreamedAnswer {
  readonly _tag = "Streamed"
  readonly served: Served
  readonly contentType: string
  readonly #source: StreamSource
  readonly #decoder: StreamDecoder
  #pending: Array<Buffer>
  #pendingSize = 0
  #consumer: StreamConsumer | undefined
  #flushed = false
  /** By the consumer. */
  #paused = false
  /** Because nobody takes the stream yet. */
  #held = false
  #end: StreamEnd | undefined

  constructor(source: StreamSource, deployment: Deployment, decoder: StreamDecoder, first: Buffer | undefined) {
    this.#source = source
    this.served = deployment.served
    this.contentType = deployment.wire.streamType
    this.#decoder = decoder
    this.#pending = first === undefined ? [] : [first]
  }

  // From the source.

  get paused(): boolean {
    return this.#paused
  }

  pass(bytes: Buffer): void {
    if (this.#flushed) return this.#consumer!.chunk(bytes)
    this.#pending.push(bytes)
    this.#pendingSize += bytes.length
    if (this.#pendingSize > largestPending && !this.#held) {
      this.#held = true
      this.#source.pause()
    }
  }

  finish(failure: GatewayError | undefined): void {
    this.#end = this.#endWith(failure)
    if (this.#flushed) this.#consumer!.end(this.#end)
  }

  // From the consumer.

  start(consumer: StreamConsumer): StreamControl {
    this.#consumer = consumer
    queueMicrotask(() => this.#flush())
    return { pause: () => this.#pause(), resume: () => this.#resume(), cancel: () => this.cancel() }
  }

  #pause(): void {
    if (this.#paused || !this.#source.streaming) return
    this.#paused = true
    this.#source.pause()
  }

  #resume(): void {
    if (!this.#paused) return
    this.#paused = false
    this.#source.forgiveSilence()
    if (!this.#held && this.#source.streaming) this.#source.resume()
  }

  cancel(): StreamEnd {
    const end = this.#end ?? this.#endWith(undefined)
    this.#flushed = false
    this.#consumer = undefined
    this.#pending = []
    this.#source.abandon(end.usage)
    this.#end = end
    return end
  }

  #flush(): void {
    const consumer = this.#consumer
    if (consumer === undefined || this.#flushed) return
    for (let bytes = this.#pending.shift(); bytes !== undefined; bytes = this.#pending.shift()) {
      consumer.chunk(bytes)
      if (this.#consumer !== consumer) return
    }
    this.#flushed = true
    if (this.#end !== undefined) consumer.end(this.#end)
    else if (this.#held) {
      this.#held = false
      if (!this.#paused) this.#source.resume()
    }
  }

  #endWith(failure: GatewayError | undefined): StreamEnd {
    const decoder = this.#decoder
    return { usage: decoder.usage(), text: () => decoder.text(), failure }
  }
}
