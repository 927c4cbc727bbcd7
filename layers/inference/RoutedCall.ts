import { Effect, Exit, type Fiber } from "effect"
import { type GatewayError, InvalidRequest, RateLimited } from "#domain/errors.ts"
import { totalTokens, type Usage } from "#domain/usage.ts"
import { Attempt, type AttemptOwner } from "#layers/inference/Attempt.ts"
import { type Deployment, type Group, pick } from "#layers/inference/Deployment.ts"
import { noteProblem } from "#layers/inference/deployment-health.ts"
import { FallbackGroups, nobodyAsked } from "#layers/inference/FallbackGroups.ts"
import type { RoutedStream } from "#layers/inference/RoutedStream.ts"
import type { RouterContext } from "#layers/inference/RouterContext.ts"
import { refusedToSend } from "#layers/inference/wires/problems.ts"
import type { Reservation } from "#services/budgets/BudgetLedger.ts"
import type { Answer, UpstreamCall } from "#services/inference/ProviderRouter.ts"
import type { DecodedAnswer, Exchange, UpstreamProblem, WireRequest } from "#services/inference/Wire.ts"

/** One call on its way: which deployment, how often, and what came of it. The Effect around it is one callback. */
export class RoutedCall implements AttemptOwner {
  readonly #context: RouterContext
  readonly #call: UpstreamCall
  /** Undefined: it was given, or the caller has gone. */
  #answer: ((result: Exit.Exit<Answer, GatewayError>) => void) | undefined

  #group: Group
  #tried: Set<Deployment> | undefined
  #fallbacks: FallbackGroups | undefined
  #problem: GatewayError | undefined
  #endsAt = 0

  #exchange: Exchange | undefined
  #retries = 0
  #reservation: Reservation | undefined
  #reserving: Fiber.Fiber<unknown, unknown> | undefined
  #attempt: Attempt | undefined
  #attempts = 0
  #timer: NodeJS.Timeout | undefined

  constructor(
    context: RouterContext,
    group: Group,
    call: UpstreamCall,
    answer: (result: Exit.Exit<Answer, GatewayError>) => void
  ) {
    this.#context = context
    this.#group = group
    this.#call = call
    this.#answer = answer
  }

  begin(): void {
    this.#next()
  }

  /** The caller has gone: everything in flight ends now. */
  interrupt(): void {
    this.#answer = undefined
    clearTimeout(this.#timer)
    this.#reserving?.interruptUnsafe()
    this.#attempt?.abort()
    this.#release()
  }

  #next(): void {
    const deployment = pick(this.#group, this.#call.operation, this.#tried, this.#context.now())
    if (deployment === undefined) return this.#nextGroup()
    if (this.#endsAt === 0) this.#endsAt = performance.now() + 2 * deployment.timeout
    this.#retries = 0
    const exchange = deployment.wire.encode(this.#call)
    if (exchange instanceof InvalidRequest) {
      this.#problem ??= exchange
      return this.#giveUpDeployment(deployment)
    }
    this.#exchange = exchange
    if (deployment.limits.length === 0 || this.#context.reserve === undefined) return this.#try(deployment)
    this.#reserve(deployment, this.#context.reserve)
  }

  #giveUpDeployment(deployment: Deployment): void {
    this.#release()
    this.#tried ??= new Set()
    this.#tried.add(deployment)
    this.#next()
  }

  #nextGroup(): void {
    const table = this.#context.table()
    this.#fallbacks ??= new FallbackGroups(this.#call.model)
    const group = this.#fallbacks.after(this.#group, table)
    if (group === undefined) {
      return this.#fail(this.#problem ?? nobodyAsked(this.#call, table.groups.get(this.#call.model)))
    }
    this.#group = group
    this.#next()
  }

  #reserve(deployment: Deployment, reserve: NonNullable<RouterContext["reserve"]>): void {
    const tokens = this.#call.tokens ?? Math.ceil(JSON.stringify(this.#call.body).length / 4)
    const outcome = Effect.match(reserve(deployment.limits, { nanos: 0n, tokens }), {
      onSuccess: (reservation) => {
        if (this.#answer === undefined) return reservation.release()
        this.#reservation = reservation
        this.#try(deployment)
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

  #try(deployment: Deployment): void {
    const { request } = this.#exchange!
    if (deployment.wire.sign === undefined) return this.#send(deployment, request)
    try {
      const signed = deployment.wire.sign(request, this.#context.now())
      if (!(signed instanceof Promise)) return this.#send(deployment, signed)
      signed.then(
        (ready) => (this.#answer === undefined ? undefined : this.#send(deployment, ready)),
        () => (this.#answer === undefined ? undefined : this.#unsigned(deployment))
      )
    } catch {
      this.#unsigned(deployment)
    }
  }

  #unsigned(deployment: Deployment): void {
    const problem = refusedToSend("its request cannot be signed")
    this.#goOn(deployment, problem, noteProblem(this.#context, deployment, problem, false))
  }

  #send(deployment: Deployment, request: WireRequest): void {
    const attempt = new Attempt(this, this.#context, this.#call, deployment, this.#exchange!)
    this.#attempt = attempt
    this.#attempts += 1
    const { span } = this.#call
    if (span === undefined) return attempt.send(request)
    attempt.send(attempt.traced(span, request, { ordinal: this.#attempts, retries: this.#retries }))
  }

  // What comes of a try.

  answered({ served }: Deployment, { body, contentType, texts, usage }: DecodedAnswer): void {
    this.#release(usage)
    this.#resolve(Exit.succeed({ _tag: "Buffered", served, contentType, body, usage, texts }))
  }

  streaming(stream: RoutedStream): void {
    this.#resolve(Exit.succeed(stream))
  }

  streamed(usage: Usage | undefined): void {
    this.#release(usage)
  }

  failed(attempt: Attempt, problem: UpstreamProblem): void {
    const { deployment, probe, stream } = attempt
    const error = noteProblem(this.#context, deployment, problem, probe)
    if (stream === undefined) return this.#goOn(deployment, problem, error)
    this.#release(attempt.usage)
    stream.finish(error)
  }

  /** After a try without an answer: the same deployment again, the next one, or none. */
  #goOn(deployment: Deployment, problem: UpstreamProblem, error: GatewayError): void {
    this.#problem = error
    if (problem.remedy === "none") {
      this.#release()
      return this.#fail(error)
    }
    const wait = this.#wait(problem)
    const late = performance.now() + wait >= this.#endsAt
    const again = problem.remedy === "retry" && this.#retries < deployment.maxRetries && deployment.state.breaker.admits
    if (again && !late && wait <= this.#context.options.longestRetryAfter) {
      this.#retries += 1
      this.#timer = setTimeout(() => this.#try(deployment), wait)
      return
    }
    if (performance.now() >= this.#endsAt) {
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

  #resolve(result: Exit.Exit<Answer, GatewayError>): void {
    const answer = this.#answer
    this.#answer = undefined
    answer?.(result)
  }

  #fail(error: GatewayError): void {
    this.#resolve(Exit.fail(error))
  }
}
