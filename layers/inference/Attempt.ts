import type { Usage } from "#domain/usage.ts"
import {
  type AttemptNumber,
  endAbandonedAttempt,
  endFailedAttempt,
  openAttempt,
  tellFirstChunk
} from "#layers/inference/attempt-span.ts"
import type { Deployment } from "#layers/inference/Deployment.ts"
import { noteResponsive, noteSuccess } from "#layers/inference/deployment-health.ts"
import { RoutedStream, type StreamSource } from "#layers/inference/RoutedStream.ts"
import type { RouterContext } from "#layers/inference/RouterContext.ts"
import {
  connectionProblem,
  deadlinePassed,
  headerText,
  isProblem,
  malformedAnswer,
  refusedToSend,
  streamCut
} from "#layers/inference/wires/problems.ts"
import type { UpstreamCall } from "#services/inference/ProviderRouter.ts"
import type { TransportControl, TransportFailure, TransportReceiver } from "#services/inference/Transport.ts"
import type {
  DecodedAnswer,
  Exchange,
  StreamDecoder,
  UpstreamProblem,
  WireHeaders,
  WireRequest
} from "#services/inference/Wire.ts"
import type { Span } from "#services/telemetry/Tracing.ts"

const largestErrorBody = 64 * 1024
/** How long the end of an answer whose content has ended is awaited, so that its connection can be used again. */
const drainTime = 1_000

const watch = (attempt: Attempt): void => attempt.watch()

type Phase = "idle" | "sending" | "body" | "error" | "stream" | "drain"

/** Who makes the try. */
export interface AttemptOwner {
  /** A whole answer has come. */
  readonly answered: (deployment: Deployment, answer: DecodedAnswer) => void
  /** A stream has begun. What happens from then on is the stream's, and cannot be tried again. */
  readonly streaming: (stream: RoutedStream) => void
  /** The stream is complete, or its consumer has given it up. */
  readonly streamed: (usage: Usage | undefined) => void
  /** Nothing came of it, or its stream broke. */
  readonly failed: (attempt: Attempt, problem: UpstreamProblem) => void
}

/**
 * One try of one deployment: a state machine on the transport's callbacks, because this is the hottest path of the
 * program.
 */
export class Attempt implements TransportReceiver, StreamSource {
  readonly deployment: Deployment
  readonly #owner: AttemptOwner
  readonly #context: RouterContext
  readonly #call: UpstreamCall
  readonly #exchange: Exchange
  #probe = false
  /** Where the call is traced. */
  #span: Span | undefined

  #phase: Phase = "idle"
  #control: TransportControl | undefined
  #timer: NodeJS.Timeout | undefined
  #startedAt = 0
  #progressAt = 0
  #status = 0
  #headers: WireHeaders = {}
  #parts: Array<Buffer> = []
  #size = 0

  #decoder: StreamDecoder | undefined
  #eventsSeen = 0
  /** Once its first bytes are there. */
  #stream: RoutedStream | undefined

  constructor(
    owner: AttemptOwner,
    context: RouterContext,
    call: UpstreamCall,
    deployment: Deployment,
    exchange: Exchange
  ) {
    this.#owner = owner
    this.#context = context
    this.#call = call
    this.deployment = deployment
    this.#exchange = exchange
  }

  /** Whether it is the deployment's probe. */
  get probe(): boolean {
    return this.#probe
  }

  /** The stream that it began. */
  get stream(): RoutedStream | undefined {
    return this.#stream
  }

  /** What a stream has reported so far, also one whose first bytes never came. */
  get usage(): Usage | undefined {
    return this.#decoder?.usage()
  }

  /** Opens its span; `send` what is returned. After the signature, which knows nothing of these headers. */
  traced(parent: Span, request: WireRequest, number: AttemptNumber): WireRequest {
    this.#span = openAttempt(parent, this.deployment, request, number)
    return { ...request, headers: this.#span.propagate(request.headers) }
  }

  send(request: WireRequest): void {
    const { state, timeout, streamTimeout, transport, wire } = this.deployment
    this.#probe = state.breaker.begin()
    this.#call.underway?.(true)
    state.inFlight += 1
    this.#phase = "sending"
    this.#startedAt = performance.now()
    this.#progressAt = this.#startedAt
    this.#timer = setTimeout(watch, this.#call.stream ? Math.min(timeout, streamTimeout) : timeout, this)
    this.#control = transport.send(wire.origin, request, this)
  }

  /** Ends whatever is in flight without an outcome. */
  abort(): void {
    clearTimeout(this.#timer)
    const phase = this.#phase
    if (phase === "idle") return
    this.#phase = "idle"
    this.#control?.abort()
    if (phase === "drain") return
    if (this.#span !== undefined) endAbandonedAttempt(this.#span)
    this.deployment.state.inFlight -= 1
    if (this.#eventsSeen === 0) this.deployment.state.breaker.neutral(this.#probe)
    else noteResponsive(this.#context, this.deployment, this.#probe)
  }

  /** Deadlines: one timer, set again where it fires too early. */
  watch(): void {
    if (this.#phase === "drain") return this.#control?.abort()
    const { timeout, streamTimeout } = this.deployment
    const now = performance.now()
    const total = this.#startedAt + timeout - now
    if (total <= 0.5) return this.#refuse(deadlinePassed("the whole answer takes too long"))
    if (!this.#call.stream) return this.#again(total)
    const silence = this.#stream?.paused === true ? 0 : now - this.#progressAt
    if (silence < streamTimeout - 0.5) return this.#again(Math.min(total, streamTimeout - silence))
    this.#refuse(deadlinePassed(this.#stream === undefined ? "the stream has not begun" : "the stream has stalled"))
  }

  #again(wait: number): void {
    this.#timer = setTimeout(watch, Math.max(1, wait), this)
  }

  // What the transport says.

  head(status: number, headers: WireHeaders): void {
    this.#status = status
    this.#headers = headers
    this.#span?.set("http.response.status_code", status)
    const type = headerText(headers, "content-type") ?? ""
    const encoding = headerText(headers, "content-encoding") ?? "identity"
    if (status < 200 || status >= 300) this.#phase = "error"
    else if (encoding !== "identity") this.#refuse(malformedAnswer("it is compressed, which was not asked for"))
    else if (this.#call.stream && !type.startsWith("application/json")) {
      this.#phase = "stream"
      this.#decoder = this.#exchange.openStream(headers)
    } else {
      this.#phase = "body"
      const length = Number(headerText(headers, "content-length") ?? 0)
      if (length > this.#context.options.largestAnswer) this.#refuse(refusedToSend("its answer is too large"))
    }
  }

  data(chunk: Buffer): void {
    switch (this.#phase) {
      case "stream":
        return this.#event(chunk)
      case "body":
        this.#size += chunk.length
        if (this.#size > this.#context.options.largestAnswer) {
          return this.#refuse(refusedToSend("its answer is too large"))
        }
        this.#parts.push(chunk)
        return
      case "error":
        this.#size += chunk.length
        this.#parts.push(chunk)
        if (this.#size > largestErrorBody) {
          this.#control?.abort()
          this.end()
        }
        return
      default:
    }
  }

  end(): void {
    switch (this.#phase) {
      case "error": {
        const classify = this.#exchange.classify ?? this.deployment.wire.classify
        return this.#failed(classify({ status: this.#status, headers: this.#headers, body: this.#body() }))
      }
      case "body": {
        if (this.#call.stream) return this.#failed(malformedAnswer("it is not a stream"))
        const decoded = this.#exchange.decode({ status: this.#status, headers: this.#headers, body: this.#body() })
        if (isProblem(decoded)) return this.#failed(decoded)
        this.#succeeded()
        return this.#owner.answered(this.deployment, decoded)
      }
      case "stream": {
        const last = this.#decoder!.finish()
        const { problem } = this.#decoder!
        if (last !== undefined && (problem === undefined || this.#stream !== undefined)) this.#pass(last)
        return problem === undefined ? this.#whole(false) : this.#failed(problem)
      }
      case "drain":
        return this.#drained()
      default:
    }
  }

  failed(failure: TransportFailure): void {
    if (this.#phase === "drain") return this.#drained()
    if (failure.kind === "refused") return this.#failed(refusedToSend(failure.message))
    this.#failed(this.#stream === undefined ? connectionProblem(failure.message) : streamCut)
  }

  #body(): Buffer {
    const [first] = this.#parts
    const body = first !== undefined && this.#parts.length === 1 ? first : Buffer.concat(this.#parts)
    this.#parts = []
    return body
  }

  #refuse(problem: UpstreamProblem): void {
    this.#control?.abort()
    this.#failed(problem)
  }

  #drained(): void {
    clearTimeout(this.#timer)
    this.#phase = "idle"
  }

  // A stream.

  #event(chunk: Buffer): void {
    const decoder = this.#decoder!
    const ready = decoder.feed(chunk)
    if (decoder.events !== this.#eventsSeen) {
      this.#eventsSeen = decoder.events
      this.#progressAt = performance.now()
    }
    const { problem } = decoder
    if (problem !== undefined) {
      // Before the stream begins, what came with an error is worth nothing: the call can still be tried again.
      if (ready !== undefined) this.#stream?.pass(ready)
      return this.#refuse(problem)
    }
    if (ready !== undefined) this.#pass(ready)
    if (decoder.ended) this.#whole(true)
  }

  #pass(bytes: Buffer): void {
    if (this.#stream !== undefined) return this.#stream.pass(bytes)
    const elapsed = performance.now() - this.#startedAt
    this.deployment.state.responseTimeMs = elapsed
    if (this.#span !== undefined) tellFirstChunk(this.#span, elapsed)
    this.#begin(bytes)
  }

  #begin(first: Buffer | undefined): void {
    this.#stream = new RoutedStream(this, this.deployment, this.#decoder!, first)
    this.#owner.streaming(this.#stream)
  }

  /** The stream's content is complete. An answer without any event is an answer too. */
  #whole(connectionOpen: boolean): void {
    // Whoever was told of its last part may have given it up then.
    if (this.#phase === "idle") return
    this.#succeeded()
    this.#owner.streamed(this.usage)
    if (connectionOpen) {
      this.#phase = "drain"
      this.#timer = setTimeout(watch, drainTime, this)
      this.#timer.unref()
    }
    if (this.#stream === undefined) this.#begin(undefined)
    this.#stream!.finish(undefined)
  }

  get streaming(): boolean {
    return this.#phase === "stream"
  }

  pause(): void {
    this.#control?.pause()
  }

  resume(): void {
    this.#control?.resume()
  }

  forgiveSilence(): void {
    this.#progressAt = performance.now()
  }

  abandon(usage: Usage | undefined): void {
    this.abort()
    this.#owner.streamed(usage)
  }

  // Outcomes.

  #succeeded(): void {
    this.#span?.end()
    clearTimeout(this.#timer)
    this.#phase = "idle"
    const { state } = this.deployment
    state.inFlight -= 1
    if (!this.#call.stream) state.responseTimeMs = performance.now() - this.#startedAt
    noteSuccess(this.#context, this.deployment, this.#probe)
  }

  /** The connection is over. */
  #failed(problem: UpstreamProblem): void {
    if (this.#phase === "idle") return
    if (this.#span !== undefined) endFailedAttempt(this.#span, problem.error)
    clearTimeout(this.#timer)
    this.#phase = "idle"
    this.#call.underway?.(false)
    this.deployment.state.inFlight -= 1
    this.#owner.failed(this, problem)
  }
}
