import { Cause, type Context, Effect, Exit, type Fiber } from "effect"
import { type GatewayError, internalFailure, isGatewayError } from "#domain/errors.ts"
import type { GuardrailEvent, GuardrailStage } from "#domain/guardrails.ts"
import { uuidv7 } from "#domain/ids.ts"
import type { JsonObject } from "#domain/json.ts"
import { tenantOf } from "#domain/principal.ts"
import { promptTexts } from "#domain/prompt-texts.ts"
import { countRefusal } from "#domain/telemetry.ts"
import type { Price, Usage } from "#domain/usage.ts"
import type { Admission, Admitted } from "#layers/inference/admission.ts"
import { answeredTexts } from "#layers/inference/answered-texts.ts"
import { endCall, endRefused, openCall, tellVerdict, within } from "#layers/inference/call-spans.ts"
import type { Counting } from "#layers/inference/counting.ts"
import { guardStream } from "#layers/inference/guarded-stream.ts"
import { type Ending, finishCall, type RunningCall, tellOutcome } from "#layers/inference/RunningCall.ts"
import type { Reservation } from "#services/budgets/BudgetLedger.ts"
import type { AlertsShape } from "#services/callbacks/Alerts.ts"
import type { GuardrailEngine, GuardrailPolicy, GuardrailVerdict } from "#services/guardrails/GuardrailEngine.ts"
import { CurrentRequestId } from "#services/identity/CurrentRequestId.ts"
import type { CallListener, ModelCall, StreamingCall } from "#services/inference/ModelCalls.ts"
import type {
  Answer,
  BufferedAnswer,
  ProviderRouter,
  Served,
  StreamControl,
  StreamedAnswer,
  StreamEnd
} from "#services/inference/ProviderRouter.ts"
import type { Span, TracingShape } from "#services/telemetry/Tracing.ts"
import type { UsageLedger } from "#services/usage/UsageLedger.ts"

/** What every call shares. */
export interface CallContext {
  readonly admit: Admission["admit"]
  readonly router: ProviderRouter["Service"]
  readonly guardrails: GuardrailEngine["Service"]
  readonly usageLedger: UsageLedger["Service"]
  readonly counting: Counting
  readonly alerts: AlertsShape
  readonly tracing: TracingShape | undefined
  readonly now: () => number
  readonly fork: <A, E>(effect: Effect.Effect<A, E>) => Fiber.Fiber<A, E>
  /** For what outlives its request: the scope waits for it, so that a shutdown loses none. */
  readonly runEnding: (effect: Effect.Effect<void>) => unknown
  readonly metrics: Context.Context<never>
  readonly load: { inFlight: number }
}

const doneEvent = Buffer.from("data: [DONE]\n\n")

/** Whether the operation's streams end with the OpenAI protocol's `[DONE]`. */
const endsWithDone = (call: ModelCall): boolean => call.operation === "chat" || call.operation === "completion"

const organizationOf = ({ caller }: ModelCall): string | null =>
  caller._tag === "ApiKey"
    ? caller.key.organizationId
    : caller._tag === "Administrator"
      ? (caller.organizationId ?? null)
      : null

const statusOf = (error: GatewayError | undefined): Ending["status"] =>
  error === undefined ? "success" : error._tag === "GuardrailBlocked" ? "blocked" : "error"

/**
 * One call from its admission to its record: the pipeline of design.md. Like the routed call below it a state machine on
 * callbacks, because nearly every step of nearly every call is done at once, and a fiber's bookkeeping costs more than
 * the steps; what has to wait runs as an effect. However it ends, and whoever leaves, it is settled and recorded once.
 */
export class GovernedCall implements RunningCall {
  readonly call: ModelCall
  readonly guardrails: Array<GuardrailEvent> = []
  callId = ""
  startedAt = 0
  reservation: Reservation | undefined
  price: Price | undefined
  sent = false
  consumed: Usage | undefined
  served: Served | undefined
  firstByteAt: number | undefined
  span: Span | undefined
  ending = false

  readonly #context: CallContext
  readonly #listener: CallListener
  #policy: GuardrailPolicy | undefined
  #admitted = false
  /** Its caller has gone: nobody is told anything any more. */
  #left = false
  /** What is under way can be given up: by this. Undefined where it ends by itself, and soon. */
  #giveUp: (() => void) | undefined

  constructor(context: CallContext, call: ModelCall, listener: CallListener) {
    this.#context = context
    this.call = call
    this.#listener = listener
  }

  // What was asked for.

  begin(): void {
    const { admit, tracing } = this.#context
    const span = tracing === undefined ? undefined : openCall(tracing, this.call)
    this.span = span
    const admission = span === undefined ? admit(this.call) : within(span, "reserve", () => admit(this.call))
    this.#when(admission, this.#onAdmitted, this.#onRefused)
  }

  /** The caller has gone: whatever is in flight ends now, and is charged. Does nothing where the call is over. */
  cancel(): void {
    if (this.#left || this.ending) return
    this.#left = true
    const giveUp = this.#giveUp
    if (giveUp === undefined) return
    this.#giveUp = undefined
    giveUp()
    if (!this.ending) this.#conclude(Cause.interrupt())
  }

  readonly #onRefused = (cause: Cause.Cause<GatewayError>): void => {
    const { metrics } = this.#context
    const error = errorOf(cause)
    countRefusal(this.call.operation, error.code, metrics)
    if (this.span !== undefined) endRefused(this.span, error)
    this.ending = true
    this.#tellFailed(cause)
  }

  readonly #onAdmitted = ({ model, reservation }: Admitted): void => {
    const { guardrails, load, now } = this.#context
    load.inFlight++
    this.#admitted = true
    this.startedAt = now()
    this.callId = uuidv7(this.startedAt)
    this.reservation = reservation
    this.price = model.price
    if (this.#left) return this.#conclude(Cause.interrupt())
    const policy = guardrails.policy(tenantOf(this.call.caller), organizationOf(this.call), {
      principal: this.call.caller,
      requestId: this.call.requestId
    })
    this.#policy = policy
    if (policy?.pre !== true) return this.#route(this.call.body)
    const found = promptTexts(this.call.body)
    this.#whenInterruptible(this.#check("pre", policy, found.texts), (verdict) => {
      this.guardrails.push(...verdict.events)
      if (verdict.blocked !== undefined) return this.#conclude(Cause.fail(verdict.blocked))
      this.#route(verdict.texts === found.texts ? this.call.body : found.replaced(verdict.texts))
    })
  }

  #check(
    stage: GuardrailStage,
    policy: GuardrailPolicy,
    texts: ReadonlyArray<string>
  ): Effect.Effect<GuardrailVerdict> {
    const { span } = this
    return span === undefined
      ? policy.check(stage, texts)
      : within(span, `guardrails ${stage}`, (inner) => policy.check(stage, texts, inner), tellVerdict)
  }

  #route(body: JsonObject): void {
    const { call } = this
    let answered = false
    const interrupt = this.#context.router.begin(
      {
        operation: call.operation,
        model: call.model,
        body,
        stream: call.stream,
        wantsUsage: call.wantsUsage,
        requestId: call.requestId,
        span: this.span,
        underway: this.#onUnderway,
        ...(call.headers === undefined ? {} : { headers: call.headers }),
        ...(call.files === undefined ? {} : { files: call.files })
      },
      (exit) => {
        answered = true
        this.#giveUp = undefined
        this.#protect(() => this.#onAnswer(exit))
      }
    )
    if (!answered) this.#giveUp = interrupt
  }

  readonly #onUnderway = (is: boolean): void => {
    this.sent = is
  }

  // What was answered.

  #onAnswer(exit: Exit.Exit<Answer, GatewayError>): void {
    if (Exit.isFailure(exit)) return this.#conclude(exit.cause)
    const answer = exit.value
    this.served = answer.served
    if (answer._tag === "Streamed") return this.#onStream(answer)
    this.firstByteAt = this.#context.now()
    this.#when(this.#context.counting.usageOfAnswer(this.call, answer), (usage) => {
      this.consumed = usage
      if (this.#left) return this.#conclude(Cause.interrupt())
      const policy = this.#policy
      if (policy?.post === true) return this.#checkAnswer(answer, policy)
      this.#deliver(answer.contentType, answer.body)
    })
  }

  #checkAnswer({ body, contentType }: BufferedAnswer, policy: GuardrailPolicy): void {
    const found = answeredTexts(body, contentType)
    if (found === undefined) return this.#deliver(contentType, body)
    this.#whenInterruptible(this.#check("post", policy, found.texts), (verdict) => {
      this.guardrails.push(...verdict.events)
      if (verdict.blocked !== undefined) return this.#conclude(Cause.fail(verdict.blocked))
      this.#deliver(contentType, verdict.texts === found.texts ? body : found.replaced(verdict.texts))
    })
  }

  #deliver(contentType: string, body: Buffer): void {
    this.#finish({ status: "success", usage: this.consumed, error: undefined }, () =>
      this.#listener.answered({ _tag: "Completed", contentType, body })
    )
  }

  /** Settles and journals before the last bytes go out. */
  #onStream(answer: StreamedAnswer): void {
    const { runEnding } = this.#context
    const policy = this.#policy
    const abandoned = (end: StreamEnd) => this.#finishStream("cancelled", end)
    this.#giveUp = () => abandoned(answer.cancel())
    const stream: StreamingCall = {
      _tag: "Streaming",
      contentType: answer.contentType,
      start: (consumer) => {
        const end = (end: StreamEnd) => {
          this.#giveUp = undefined
          this.#finishStream(statusOf(end.failure), end, () => {
            if (end.failure === undefined && endsWithDone(this.call)) consumer.chunk(doneEvent)
            consumer.end(end.failure)
          })
        }
        const chunk = (bytes: Buffer) => {
          this.firstByteAt ??= this.#context.now()
          consumer.chunk(bytes)
        }
        const control: StreamControl =
          policy?.post === true
            ? guardStream(this.call.operation, answer, policy, this.guardrails, { chunk, end }, runEnding, this.span)
            : answer.start({ chunk, end })
        if (!this.ending) this.#giveUp = () => abandoned(control.cancel())
        return { pause: control.pause, resume: control.resume, cancel: () => this.cancel() }
      }
    }
    this.#listener.answered(stream)
  }

  #finishStream(status: Ending["status"], end: StreamEnd, recorded?: () => void): void {
    this.#finishCounted(status, end.failure, this.#context.counting.usageOfStream(this.call, end), recorded)
  }

  // How it ended.

  /** Whatever ended the call: it is settled and recorded, and a prompt that had left is charged. */
  #conclude(cause: Cause.Cause<GatewayError>): void {
    const told = () => this.#tellFailed(cause)
    const failure = failureOf(cause)
    if (failure !== undefined) {
      return this.#finish({ status: statusOf(failure), usage: this.consumed, error: failure }, told)
    }
    if (!Cause.hasInterrupts(cause)) {
      return this.#finish({ status: "error", usage: this.consumed, error: internalFailure }, told)
    }
    const counted = this.consumed === undefined && this.sent
    const usage = counted ? this.#context.counting.estimate(this.call, []) : Effect.succeed(this.consumed)
    this.#finishCounted("cancelled", undefined, usage, told)
  }

  #finishCounted(
    status: Ending["status"],
    error: GatewayError | undefined,
    usage: Effect.Effect<Usage | undefined>,
    recorded?: () => void
  ): void {
    const known = exitOf(usage)
    if (known !== undefined && Exit.isSuccess(known)) {
      return this.#finish({ status, usage: known.value, error }, recorded)
    }
    if (this.ending) return
    this.ending = true
    this.#context.runEnding(
      Effect.uninterruptible(Effect.map(usage, (usage) => this.#record({ status, usage, error }, recorded)))
    )
  }

  /** The first ending wins. */
  #finish(ending: Ending, recorded?: () => void): void {
    if (this.ending) return
    this.ending = true
    this.#record(ending, recorded)
  }

  /** Settles and journals; calls back when the record survives this process. */
  #record(ending: Ending, recorded: (() => void) | undefined): void {
    const { alerts, load, metrics, now, usageLedger } = this.#context
    const { span } = this
    const settling = span?.child("settle", "internal")
    load.inFlight--
    const outcome = finishCall(this, ending, now())
    tellOutcome(outcome, alerts, metrics)
    usageLedger.append(outcome, () => {
      settling?.end()
      if (span !== undefined) endCall(span, outcome)
      if (recorded !== undefined) this.#protect(recorded)
    })
  }

  // Waiting.

  /** Goes on with what an effect returns: now, where it has nothing to wait for. */
  #when<A>(
    effect: Effect.Effect<A, GatewayError>,
    next: (value: A) => void,
    failed: (cause: Cause.Cause<GatewayError>) => void = this.#onFailed
  ): Fiber.Fiber<A, GatewayError> | undefined {
    const go = (exit: Exit.Exit<A, GatewayError>) =>
      this.#protect(() => (Exit.isSuccess(exit) ? next(exit.value) : failed(exit.cause)))
    const known = exitOf(effect)
    if (known !== undefined) {
      go(known)
      return undefined
    }
    const fiber = this.#context.fork(Effect.provideService(effect, CurrentRequestId, this.call.requestId))
    fiber.addObserver(go)
    return fiber
  }

  /** The same for what a caller that leaves need not wait for. */
  #whenInterruptible<A>(effect: Effect.Effect<A, GatewayError>, next: (value: A) => void): void {
    let over = false
    const fiber = this.#when(
      effect,
      (value) => {
        over = true
        this.#giveUp = undefined
        if (!this.ending) next(value)
      },
      (cause) => {
        over = true
        this.#giveUp = undefined
        this.#conclude(cause)
      }
    )
    if (fiber !== undefined && !over) this.#giveUp = () => fiber.interruptUnsafe()
  }

  readonly #onFailed = (cause: Cause.Cause<GatewayError>): void => this.#conclude(cause)

  /** A defect is the end of its call, and of nothing else. */
  #protect(step: () => void): void {
    try {
      step()
    } catch (defect) {
      const cause = Cause.die(defect)
      if (!this.#admitted) return this.#onRefused(cause)
      this.#giveUp?.()
      this.#giveUp = undefined
      if (this.ending) this.#tellFailed(cause)
      else this.#conclude(cause)
    }
  }

  #tellFailed(cause: Cause.Cause<GatewayError>): void {
    if (!this.#left) this.#listener.failed(cause)
  }
}

/** The exit of an effect that has nothing to wait for. */
const exitOf = <A, E>(effect: Effect.Effect<A, E>): Exit.Exit<A, E> | undefined =>
  Exit.isExit(effect) ? (effect as Exit.Exit<A, E>) : undefined

const failureOf = (cause: Cause.Cause<GatewayError>): GatewayError | undefined => {
  const failure = cause.reasons.find((reason) => reason._tag === "Fail")?.error
  return isGatewayError(failure) ? failure : undefined
}

const errorOf = (cause: Cause.Cause<GatewayError>): GatewayError => failureOf(cause) ?? internalFailure
