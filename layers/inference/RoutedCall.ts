import { Effect, type Fiber } from "effect"
import { type GatewayError, InvalidRequest, RateLimited, Unavailable, UpstreamFailed } from "#domain/errors.ts"
import type { Limit } from "#domain/limits.ts"
import { totalTokens, type Usage } from "#domain/usage.ts"
import { endAbandonedAttempt, endFailedAttempt, openAttempt, tellFirstChunk } from "#layers/inference/attempt-span.ts"
import { deepestFallback } from "#layers/inference/compile.ts"
import { type Deployment, type Group, pick, type RoutingTable } from "#layers/inference/Deployment.ts"
import {
  connectionProblem,
  deadlinePassed,
  headerText,
  isProblem,
  malformedAnswer,
  refusedToSend,
  streamCut
} from "#layers/inference/wires/problems.ts"
import type { Demand, Reservation } from "#services/budgets/BudgetLedger.ts"
import type {
  Answer,
  HealthChange,
  StreamConsumer,
  StreamControl,
  StreamedAnswer,
  StreamEnd,
  UpstreamCall
} from "#services/inference/ProviderRouter.ts"
import type { TransportControl, TransportFailure, TransportReceiver } from "#services/inference/Transport.ts"
import type { Exchange, StreamDecoder, UpstreamProblem, WireHeaders, WireRequest } from "#services/inference/Wire.ts"
import type { Span } from "#services/telemetry/Tracing.ts"

/** What every call shares. Times are in milliseconds. */
export interface RouterContext {
  readonly table: () => RoutingTable
  readonly now: () => number
  /** Allowance for a deployment's own limits; undefined: they are not enforced. */
  readonly reserve:
    | ((limits: ReadonlyArray<Limit>, demand: Demand) => Effect.Effect<Reservation, RateLimited | Unavailable>)
    | undefined
  readonly fork: <A, E>(effect: Effect.Effect<A, E>) => Fiber.Fiber<A, E>
  readonly healthChanged: (change: HealthChange) => void
  readonly options: RoutingOptions
}

export interface RoutingOptions {
  /** The first wait between two tries; doubled with each further one, and shortened by chance to as little as half. */
  readonly backoff: number
  readonly longestBackoff: number
  /** A longer Retry-After is not waited for: the next deployment is tried. */
  readonly longestRetryAfter: number
  /** The largest whole answer, in bytes. */
  readonly largestAnswer: number
}

export const defaultRouting: RoutingOptions = {
  backoff: 250,
  longestBackoff: 8_000,
  longestRetryAfter: 10_000,
  largestAnswer: 64 * 1024 * 1024
}

const largestErrorBody = 64 * 1024
/** Of a stream whose consumer has not begun to take it. */
const largestPending = 256 * 1024
/** How long the end of an answer whose content has ended is awaited, so that its connection can be used again. */
const drainTime = 1_000
const nothing: () => string = () => ""

const watch = (call: RoutedCall): void => call.watch()

type Phase = "idle" | "sending" | "body" | "error" | "stream" | "drain"

/**
 * One call on its way: which deployment, how often, and what came of it. A state machine on the transport's callbacks,
 * because this is the hottest path of the program; the Effect around it is one callback.
 */
export class RoutedCall implements TransportReceiver, StreamedAnswer {
  readonly _tag = "Streamed"
  readonly #context: RouterContext
  readonly #call: UpstreamCall
  #answer: ((result: Effect.Effect<Answer, GatewayError>) => void) | undefined

  #group: Group
  #tried: Set<Deployment> | undefined
  #waitingGroups: Array<readonly [name: string, depth: number]> = []
  #visited: Set<string> | undefined
  #depth = 0
  #problem: GatewayError | undefined
  #callEnds = 0

  #deployment: Deployment | undefined
  #exchange: Exchange | undefined
  #retries = 0
  #probe = false
  #reservation: Reservation | undefined
  #reserving: Fiber.Fiber<unknown, unknown> | undefined
  /** Of the try in flight, where the call is traced. */
  #attempt: Span | undefined
  #attempts = 0

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
  #pending: Array<Buffer> = []
  #consumer: StreamConsumer | undefined
  #flushed = false
  /** By the consumer. */
  #paused = false
  /** Because nobody takes the stream yet. */
  #held = false
  #end: StreamEnd | undefined

  constructor(
    context: RouterContext,
    group: Group,
    call: UpstreamCall,
    answer: (result: Effect.Effect<Answer, GatewayError>) => void
  ) {
    this.#context = context
    this.#group = group
    this.#call = call
    this.#answer = answer
  }

  // The way to an answer.

  begin(): void {
    this.#next()
  }

  /** The caller has gone: everything in flight ends now. */
  interrupt(): void {
    this.#answer = undefined
    this.#abandon()
  }

  #next(): void {
    const deployment = pick(this.#group, this.#call.operation, this.#tried, this.#context.now())
    if (deployment === undefined) return this.#nextGroup()
    if (this.#callEnds === 0) this.#callEnds = performance.now() + 2 * deployment.timeout
    this.#deployment = deployment
    this.#retries = 0
    const exchange = deployment.wire.encode(this.#call)
    if (exchange instanceof InvalidRequest) {
      this.#problem ??= exchange
      return this.#giveUpDeployment(deployment)
    }
    this.#exchange = exchange
    if (deployment.limits.length === 0 || this.#context.reserve === undefined) return this.#try()
    this.#reserve(deployment, this.#context.reserve)
  }

  #giveUpDeployment(deployment: Deployment): void {
    this.#release()
    this.#tried ??= new Set()
    this.#tried.add(deployment)
    this.#next()
  }

  #nextGroup(): void {
    this.#visited ??= new Set([this.#call.model])
    if (this.#depth < deepestFallback) {
      for (const name of this.#group.fallbacks) {
        if (this.#visited.has(name)) continue
        this.#visited.add(name)
        this.#waitingGroups.push([name, this.#depth + 1])
      }
    }
    for (let next = this.#waitingGroups.shift(); next !== undefined; next = this.#waitingGroups.shift()) {
      const group = this.#context.table().groups.get(next[0])
      if (group === undefined) continue
      this.#group = group
      this.#depth = next[1]
      return this.#next()
    }
    this.#fail(this.#problem ?? this.#nobody())
  }

  /** Nobody could even be asked. */
  #nobody(): GatewayError {
    const name = this.#call.model.slice(0, 200)
    const group = this.#context.table().groups.get(this.#call.model)
    const deployments = group?.tiers.flat() ?? []
    if (deployments.length === 0) {
      const message = `No deployment of the model '${name}' can be used; its settings are incomplete.`
      return new UpstreamFailed({ code: "upstream_error", message })
    }
    const able = deployments.filter((one) => one.wire.operations.has(this.#call.operation))
    if (able.length === 0) {
      const message = `The model '${name}' does not support this operation.`
      return new InvalidRequest({ code: "unsupported_model", message, param: "model" })
    }
    const wait = Math.min(...able.map((one) => one.state.breaker.opensIn))
    return new Unavailable({
      code: "overloaded",
      message: `No deployment of the model '${name}' is healthy.`,
      retryAfter: Math.max(1, Math.ceil(wait / 1000))
    })
  }

  #reserve(deployment: Deployment, reserve: NonNullable<RouterContext["reserve"]>): void {
    const tokens = this.#call.tokens ?? Math.ceil(JSON.stringify(this.#call.body).length / 4)
    const outcome = Effect.match(reserve(deployment.limits, { nanos: 0n, tokens }), {
      onSuccess: (reservation) => {
        if (this.#answer === undefined) return reservation.release()
        this.#reservation = reservation
        this.#try()
      },
      onFailure: (error) => {
        this.#problem ??= new RateLimited({
          code: "rate_limit_exceeded",
          message: "Every deployment of the model is at its own rate limit.",
          retryAfter: error.retryAfter
        })
        if (this.#answer !== undefined) this.#giveUpDeployment(deployment)
      }
    })
    this.#reserving = this.#context.fork(outcome)
  }

  #release(usage?: Usage): void {
    const reservation = this.#reservation
    if (reservation === undefined) return
    this.#reservation = undefined
    if (usage === undefined) reservation.release()
    else reservation.settle({ nanos: 0n, tokens: totalTokens(usage) })
  }

  #try(): void {
    const deployment = this.#deployment!
    const { request } = this.#exchange!
    if (deployment.wire.sign === undefined) return this.#send(deployment, request)
    try {
      const signed = deployment.wire.sign(request, this.#context.now())
      if (!(signed instanceof Promise)) return this.#send(deployment, signed)
      const unsigned = () => this.#judge(deployment, refusedToSend("its request cannot be signed"))
      signed.then(
        (ready) => (this.#answer === undefined ? undefined : this.#send(deployment, ready)),
        () => (this.#answer === undefined ? undefined : unsigned())
      )
    } catch {
      this.#judge(deployment, refusedToSend("its request cannot be signed"))
    }
  }

  #send(deployment: Deployment, request: WireRequest): void {
    const { state } = deployment
    this.#probe = state.breaker.begin()
    this.#call.underway?.(true)
    state.inFlight += 1
    this.#phase = "sending"
    this.#parts = []
    this.#size = 0
    this.#decoder = undefined
    this.#eventsSeen = 0
    this.#pending = []
    this.#startedAt = performance.now()
    this.#progressAt = this.#startedAt
    const { timeout, streamTimeout } = deployment
    this.#timer = setTimeout(watch, this.#call.stream ? Math.min(timeout, streamTimeout) : timeout, this)
    const sent = this.#call.span === undefined ? request : this.#traced(this.#call.span, deployment, request)
    this.#control = deployment.transport.send(deployment.wire.origin, sent, this)
  }

  /** After the signature, which knows nothing of these headers. */
  #traced(span: Span, deployment: Deployment, request: WireRequest): WireRequest {
    const number = { ordinal: ++this.#attempts, retries: this.#retries }
    this.#attempt = openAttempt(span, deployment, request, number)
    return { ...request, headers: this.#attempt.propagate(request.headers) }
  }

  /** Deadlines: one timer a try, set again where it fires too early. */
  watch(): void {
    const deployment = this.#deployment!
    const now = performance.now()
    if (this.#phase === "drain") return this.#control?.abort()
    const total = this.#startedAt + deployment.timeout - now
    if (total <= 0.5) return this.#timedOut("the whole answer takes too long")
    if (!this.#call.stream) return this.#again(total)
    const silence = this.#paused && this.#consumer !== undefined ? 0 : now - this.#progressAt
    if (silence < deployment.streamTimeout - 0.5)
      return this.#again(Math.min(total, deployment.streamTimeout - silence))
    this.#timedOut(this.#answer === undefined ? "the stream has stalled" : "the stream has not begun")
  }

  #again(wait: number): void {
    this.#timer = setTimeout(watch, Math.max(1, wait), this)
  }

  #timedOut(which: string): void {
    this.#control?.abort()
    this.#failed(deadlinePassed(which))
  }

  // What the transport says.

  head(status: number, headers: WireHeaders): void {
    this.#status = status
    this.#headers = headers
    this.#attempt?.set("http.response.status_code", status)
    const type = headerText(headers, "content-type") ?? ""
    const encoding = headerText(headers, "content-encoding") ?? "identity"
    if (status < 200 || status >= 300) this.#phase = "error"
    else if (encoding !== "identity") this.#refuse(malformedAnswer("it is compressed, which was not asked for"))
    else if (this.#call.stream && !type.startsWith("application/json")) {
      this.#phase = "stream"
      this.#decoder = this.#exchange!.openStream(headers)
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
    const exchange = this.#exchange!
    const deployment = this.#deployment!
    switch (this.#phase) {
      case "error":
        return this.#failed(
          (exchange.classify ?? deployment.wire.classify)({
            status: this.#status,
            headers: this.#headers,
            body: this.#body()
          })
        )
      case "body": {
        if (this.#call.stream) return this.#failed(malformedAnswer("it is not a stream"))
        const decoded = exchange.decode({ status: this.#status, headers: this.#headers, body: this.#body() })
        if (isProblem(decoded)) return this.#failed(decoded)
        this.#succeeded(deployment)
        this.#release(decoded.usage)
        const { body, contentType, texts, usage } = decoded
        const { served } = deployment
        return this.#resolve(Effect.succeed({ _tag: "Buffered", served, contentType, body, usage, texts }))
      }
      case "stream": {
        const last = this.#decoder!.finish()
        const { problem } = this.#decoder!
        if (problem === undefined || this.#answer === undefined) this.#pass(last)
        return problem === undefined ? this.#whole(false) : this.#failed(problem)
      }
      case "drain":
        clearTimeout(this.#timer)
        this.#phase = "idle"
        return
      default:
    }
  }

  failed(failure: TransportFailure): void {
    if (this.#phase === "drain") {
      clearTimeout(this.#timer)
      this.#phase = "idle"
      return
    }
    if (failure.kind === "refused") return this.#failed(refusedToSend(failure.message))
    this.#failed(this.#answer === undefined ? streamCut : connectionProblem(failure.message))
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
      // Before the answer begins, what came with an error is worth nothing: the call can still be tried again.
      if (this.#answer === undefined) this.#pass(ready)
      return this.#refuse(problem)
    }
    if (ready !== undefined) this.#pass(ready)
    if (decoder.ended) this.#whole(true)
  }

  #pass(bytes: Buffer | undefined): void {
    if (bytes === undefined) return
    if (this.#answer !== undefined) {
      this.#deployment!.state.responseTimeMs = performance.now() - this.#startedAt
      if (this.#attempt !== undefined) tellFirstChunk(this.#attempt, performance.now() - this.#startedAt)
      this.#pending.push(bytes)
      return this.#resolve(Effect.succeed(this))
    }
    if (this.#flushed) return this.#consumer!.chunk(bytes)
    this.#pending.push(bytes)
    this.#size += bytes.length
    if (this.#size > largestPending && !this.#held) {
      this.#held = true
      this.#control?.pause()
    }
  }

  /** The stream's content is complete. An answer without any event is an answer too. */
  #whole(connectionOpen: boolean): void {
    const decoder = this.#decoder!
    this.#succeeded(this.#deployment!)
    this.#release(decoder.usage())
    if (connectionOpen) {
      this.#phase = "drain"
      this.#timer = setTimeout(watch, drainTime, this)
      this.#timer.unref()
    }
    if (this.#answer !== undefined) this.#resolve(Effect.succeed(this))
    this.#finish(undefined)
  }

  #finish(failure: GatewayError | undefined): void {
    this.#end = this.#endOf(failure)
    if (this.#flushed) this.#consumer!.end(this.#end)
  }

  #endOf(failure: GatewayError | undefined): StreamEnd {
    const decoder = this.#decoder
    return decoder === undefined
      ? { usage: undefined, text: nothing, failure }
      : { usage: decoder.usage(), text: () => decoder.text(), failure }
  }

  // What the consumer of a stream sees.

  get served() {
    return this.#deployment!.served
  }

  get contentType(): string {
    return this.#deployment!.wire.streamType
  }

  start(consumer: StreamConsumer): StreamControl {
    this.#consumer = consumer
    queueMicrotask(() => this.#flush())
    return {
      pause: () => {
        if (this.#phase !== "stream" || this.#paused) return
        this.#paused = true
        this.#control?.pause()
      },
      resume: () => {
        if (!this.#paused) return
        this.#paused = false
        this.#progressAt = performance.now()
        if (this.#phase === "stream" && !this.#held) this.#control?.resume()
      },
      cancel: () => this.cancel()
    }
  }

  cancel(): StreamEnd {
    const end = this.#end ?? this.#endOf(undefined)
    this.#flushed = false
    this.#consumer = undefined
    this.#pending = []
    this.#abandon(end.usage)
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
      if (!this.#paused) this.#control?.resume()
    }
  }

  // Outcomes of a try.

  #succeeded(deployment: Deployment): void {
    this.#attempt?.end()
    clearTimeout(this.#timer)
    this.#phase = "idle"
    const { state } = deployment
    state.inFlight -= 1
    state.lastCheckedAt = this.#context.now()
    state.lastProblem = null
    if (!this.#call.stream) state.responseTimeMs = performance.now() - this.#startedAt
    if (state.breaker.succeeded(this.#probe)) this.#changed(deployment, "recovered", undefined)
  }

  /** The try in flight ended with a problem; its connection is over. */
  #failed(problem: UpstreamProblem): void {
    const deployment = this.#deployment!
    if (this.#attempt !== undefined) endFailedAttempt(this.#attempt, problem.error)
    clearTimeout(this.#timer)
    this.#phase = "idle"
    this.#call.underway?.(false)
    deployment.state.inFlight -= 1
    this.#judge(deployment, problem)
  }

  #judge(deployment: Deployment, problem: UpstreamProblem): void {
    const { state } = deployment
    state.lastCheckedAt = this.#context.now()
    const error = this.#discreet(deployment, problem.error)
    if (problem.unhealthy) {
      state.lastProblem = error.message
      if (state.breaker.failed(this.#probe)) this.#changed(deployment, "unhealthy", error.message)
    } else if (problem.remedy === "none") {
      if (state.breaker.succeeded(this.#probe)) this.#changed(deployment, "recovered", undefined)
    } else state.breaker.neutral(this.#probe)
    this.#probe = false
    if (problem.retryAfterMs !== undefined) state.restsUntil = this.#context.now() + problem.retryAfterMs
    if (this.#answer === undefined) {
      this.#release(this.#decoder?.usage())
      return this.#finish(error)
    }
    this.#problem = error
    if (problem.remedy === "none") {
      this.#release()
      return this.#fail(error)
    }
    const wait = this.#wait(problem)
    const late = performance.now() + wait >= this.#callEnds
    const again = problem.remedy === "retry" && this.#retries < deployment.maxRetries && state.breaker.admits
    if (again && !late && wait <= this.#context.options.longestRetryAfter) {
      this.#retries += 1
      this.#timer = setTimeout(() => this.#try(), wait)
      return
    }
    if (performance.now() >= this.#callEnds) {
      this.#release()
      return this.#fail(error)
    }
    this.#giveUpDeployment(deployment)
  }

  #wait(problem: UpstreamProblem): number {
    const { backoff, longestBackoff } = this.#context.options
    const step = Math.min(longestBackoff, backoff * 2 ** this.#retries)
    return Math.max(problem.retryAfterMs ?? 0, step * (0.5 + Math.random() / 2))
  }

  /** A failure that quotes none of the deployment's secrets. */
  #discreet(deployment: Deployment, error: GatewayError): GatewayError {
    if (!(error instanceof InvalidRequest) || !deployment.secrets.some((secret) => error.message.includes(secret))) {
      return error
    }
    const message = deployment.secrets.reduce((text, secret) => text.replaceAll(secret, "[redacted]"), error.message)
    return new InvalidRequest({ code: error.code, message, param: error.param })
  }

  #changed(deployment: Deployment, state: HealthChange["state"], reason: string | undefined): void {
    this.#context.healthChanged({ deploymentId: deployment.id, modelName: deployment.modelName, state, reason })
  }

  #resolve(result: Effect.Effect<Answer, GatewayError>): void {
    const answer = this.#answer
    this.#answer = undefined
    answer?.(result)
  }

  #fail(error: GatewayError): void {
    this.#resolve(Effect.fail(error))
  }

  /** Ends whatever is in flight without an outcome. */
  #abandon(usage?: Usage): void {
    clearTimeout(this.#timer)
    this.#reserving?.interruptUnsafe()
    if (this.#attempt !== undefined) endAbandonedAttempt(this.#attempt)
    const deployment = this.#deployment
    const { breaker } = deployment?.state ?? {}
    if (this.#phase !== "idle") {
      const drained = this.#phase === "drain"
      this.#phase = "idle"
      this.#control?.abort()
      if (deployment !== undefined && !drained) {
        deployment.state.inFlight -= 1
        if (this.#eventsSeen === 0) breaker?.neutral(this.#probe)
        else if (breaker?.succeeded(this.#probe)) this.#changed(deployment, "recovered", undefined)
      }
    }
    this.#release(usage)
  }
}
