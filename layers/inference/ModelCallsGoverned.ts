import { Cause, Clock, Effect, Exit, FiberSet, Layer } from "effect"
import { type GatewayError, internalFailure, isGatewayError } from "#domain/errors.ts"
import type { GuardrailStage } from "#domain/guardrails.ts"
import type { JsonObject } from "#domain/json.ts"
import { uuidv7 } from "#domain/ids.ts"
import { tenantOf } from "#domain/principal.ts"
import { answerTexts, promptTexts } from "#domain/prompt-texts.ts"
import { countCall, countRefusal } from "#domain/telemetry.ts"
import { completionTokens, promptTokens, totalTokens, type Usage } from "#domain/usage.ts"
import { makeAdmission } from "#layers/inference/admission.ts"
import { endCall, endRefused, openCall, tellVerdict, within } from "#layers/inference/call-spans.ts"
import { makeCounting } from "#layers/inference/counting.ts"
import { type Ending, finishCall, type RunningCall } from "#layers/inference/RunningCall.ts"
import { guardStream } from "#layers/inference/guarded-stream.ts"
import { BudgetLedger } from "#services/budgets/BudgetLedger.ts"
import { Alerts } from "#services/callbacks/Alerts.ts"
import { GuardrailEngine, type GuardrailPolicy, type GuardrailVerdict } from "#services/guardrails/GuardrailEngine.ts"
import {
  type ByteConsumer,
  type ByteControl,
  type CompletedCall,
  type ModelCall,
  ModelCalls,
  type StreamingCall
} from "#services/inference/ModelCalls.ts"
import {
  type BufferedAnswer,
  ProviderRouter,
  type StreamControl,
  type StreamedAnswer,
  type StreamEnd
} from "#services/inference/ProviderRouter.ts"
import { CustomerPolicies } from "#services/people/CustomerPolicies.ts"
import { TokenCounter } from "#services/tokens/TokenCounter.ts"
import { Tracing } from "#services/telemetry/Tracing.ts"
import { UsageLedger } from "#services/usage/UsageLedger.ts"

const doneEvent = Buffer.from("data: [DONE]\n\n")

const organizationOf = ({ caller }: ModelCall): string | null =>
  caller._tag === "ApiKey"
    ? caller.key.organizationId
    : caller._tag === "Administrator"
      ? (caller.organizationId ?? null)
      : null

/** Whether the operation's streams end with the OpenAI protocol's `[DONE]`. */
const endsWithDone = (call: ModelCall): boolean => call.operation === "chat" || call.operation === "completion"

export interface ModelCallsOptions {
  /** More calls than this at once are answered 503 `overloaded`. */
  readonly maxInFlight: number
}

/** The pipeline over the ledger, the guardrails, the router and the usage ledger. */
export const layer = (options: ModelCallsOptions) =>
  Layer.effect(
    ModelCalls,
    Effect.gen(function* () {
      const clock = yield* Clock.Clock
      const router = yield* ProviderRouter
      const usageLedger = yield* UsageLedger
      const guardrails = yield* GuardrailEngine
      // Endings that outlive their request: the scope waits for them, so that a shutdown loses none.
      const runEnding = yield* FiberSet.makeRuntime<never, void, never>()
      const context = yield* Effect.context<never>()
      const now = () => clock.currentTimeMillisUnsafe()
      const tracing = yield* Tracing
      const alerts = yield* Alerts
      let inFlight = 0
      const counting = makeCounting(yield* TokenCounter)
      const { admit, admitUpload } = makeAdmission({
        router,
        ledger: yield* BudgetLedger,
        usageLedger,
        customers: yield* CustomerPolicies,
        counting,
        alerts,
        isFull: () => inFlight >= options.maxInFlight
      })

      /** Settles, journals, and does so once: the first ending wins. */
      const settleAndRecord = (running: RunningCall, ending: Ending): Effect.Effect<void> => {
        const { span } = running
        const settling = span?.child("settle", "internal")
        const outcome = finishCall(running, ending, now())
        countCall(
          {
            operation: outcome.operation,
            status: outcome.status,
            durationMs: outcome.durationMs,
            firstByteMs: outcome.firstByteMs,
            promptTokens: promptTokens(outcome.usage),
            completionTokens: completionTokens(outcome.usage),
            spend: outcome.cost
          },
          context
        )
        if (!outcome.priced && outcome.status === "success") alerts.servedUnpriced(outcome.model)
        if (span === undefined) return usageLedger.record(outcome)
        return Effect.tap(usageLedger.record(outcome), () =>
          Effect.sync(() => {
            settling?.end()
            endCall(span, outcome)
          })
        )
      }

      const finish = (
        running: RunningCall,
        status: Ending["status"],
        error: GatewayError | undefined,
        usage: Effect.Effect<Usage | undefined>
      ) =>
        Effect.suspend(() => {
          if (running.ending) return Effect.void
          running.ending = true
          inFlight--
          return Effect.flatMap(usage, (usage) => settleAndRecord(running, { status, usage, error }))
        })

      const nothingUsed = Effect.succeed(undefined)

      /** What a stream consumed: as reported, or else counted, if anything was generated at all. */
      const streamUsage = (running: RunningCall, end: StreamEnd): Effect.Effect<Usage | undefined> => {
        if (end.usage !== undefined && !end.usage.estimated) return Effect.succeed(end.usage)
        const text = end.text()
        // Cut before its own end: what the upstream had reported of the prompt stands, the rest is counted.
        if (end.usage !== undefined) {
          const reported = end.usage
          return Effect.map(counting.countTexts([text]), (output) => ({ ...reported, output, reasoning: 0 }))
        }
        return text === "" && end.failure !== undefined ? nothingUsed : counting.estimate(running.call, [text])
      }

      const check = (
        { span }: RunningCall,
        stage: GuardrailStage,
        policy: GuardrailPolicy,
        texts: ReadonlyArray<string>
      ): Effect.Effect<GuardrailVerdict> =>
        span === undefined
          ? policy.check(stage, texts)
          : within(span, `guardrails ${stage}`, (inner) => policy.check(stage, texts, inner), tellVerdict)

      const checkRequest = Effect.fnUntraced(function* (running: RunningCall, policy: GuardrailPolicy) {
        const found = promptTexts(running.call.body)
        const verdict = yield* check(running, "pre", policy, found.texts)
        running.guardrails.push(...verdict.events)
        if (verdict.blocked !== undefined) return yield* verdict.blocked
        return verdict.texts === found.texts ? running.call.body : found.replaced(verdict.texts)
      })

      const checkAnswer = Effect.fnUntraced(function* (
        running: RunningCall,
        { body, contentType }: BufferedAnswer,
        policy: GuardrailPolicy
      ) {
        const found = answeredTexts(body, contentType)
        if (found === undefined) return body
        const verdict = yield* check(running, "post", policy, found.texts)
        running.guardrails.push(...verdict.events)
        if (verdict.blocked !== undefined) return verdict.blocked
        return verdict.texts === found.texts ? body : found.replaced(verdict.texts)
      })

      /** Where the wire knows images or seconds but no tokens, the prompt's are counted (`Usage.estimated`). */
      const usageOfAnswer = (running: RunningCall, { texts, usage }: BufferedAnswer): Effect.Effect<Usage> =>
        usage === undefined
          ? counting.estimate(running.call, texts())
          : usage.estimated && totalTokens(usage) === 0
            ? Effect.map(counting.countPrompt(running.call), (input) => ({ ...usage, input }))
            : Effect.succeed(usage)

      const completeBuffered = Effect.fnUntraced(function* (
        running: RunningCall,
        answer: BufferedAnswer,
        policy: GuardrailPolicy | undefined
      ) {
        running.firstByteAt = now()
        const usage = yield* Effect.uninterruptible(usageOfAnswer(running, answer))
        running.consumed = usage
        const checked = policy?.post === true ? yield* checkAnswer(running, answer, policy) : answer.body
        if (!Buffer.isBuffer(checked)) {
          yield* finish(running, "blocked", checked, Effect.succeed(usage))
          return yield* checked
        }
        yield* finish(running, "success", undefined, Effect.succeed(usage))
        return { _tag: "Completed", contentType: answer.contentType, body: checked } satisfies CompletedCall
      })

      const abandon = (running: RunningCall, end: StreamEnd) =>
        finish(running, "cancelled", undefined, streamUsage(running, end))

      /** A stream in the hands of its client: settles and journals before the last bytes go out. */
      const streaming = (
        running: RunningCall,
        answer: StreamedAnswer,
        policy: GuardrailPolicy | undefined
      ): StreamingCall => ({
        _tag: "Streaming",
        contentType: answer.contentType,
        start: (consumer) => {
          const end = (end: StreamEnd) =>
            runEnding(
              Effect.andThen(
                finish(running, statusOf(end.failure), end.failure, streamUsage(running, end)),
                Effect.sync(() => {
                  if (end.failure === undefined && endsWithDone(running.call)) consumer.chunk(doneEvent)
                  consumer.end(end.failure)
                })
              )
            )
          const first = (bytes: Buffer) => {
            running.firstByteAt ??= now()
            consumer.chunk(bytes)
          }
          const control: StreamControl =
            policy?.post === true
              ? guardStream(
                  running.call.operation,
                  answer,
                  policy,
                  running.guardrails,
                  { chunk: first, end },
                  runEnding,
                  running.span
                )
              : answer.start({ chunk: first, end })
          return {
            pause: control.pause,
            resume: control.resume,
            cancel: () => {
              if (!running.ending) runEnding(abandon(running, control.cancel()))
            }
          }
        }
      })

      const answer = Effect.fnUntraced(function* (running: RunningCall, policy: GuardrailPolicy | undefined) {
        const { call } = running
        const body = policy?.pre === true ? yield* checkRequest(running, policy) : call.body
        const answered = yield* router.route({
          operation: call.operation,
          model: call.model,
          body,
          stream: call.stream,
          wantsUsage: call.wantsUsage,
          requestId: call.requestId,
          span: running.span,
          underway: (is) => {
            running.sent = is
          },
          ...(call.headers === undefined ? {} : { headers: call.headers }),
          ...(call.files === undefined ? {} : { files: call.files })
        })
        running.served = answered.served
        return answered
      })

      /** Whatever the fiber died of, the call is settled and recorded; a prompt that had left is charged. */
      const conclude = (running: RunningCall, exit: Exit.Exit<unknown, unknown>): Effect.Effect<void> => {
        if (running.ending) return Effect.void
        const used = Effect.succeed(running.consumed)
        if (Exit.isSuccess(exit)) return finish(running, "success", undefined, used)
        const failure = exit.cause.reasons.find((reason) => reason._tag === "Fail")?.error
        if (isGatewayError(failure)) return finish(running, statusOf(failure), failure, used)
        if (!Cause.hasInterrupts(exit.cause)) return finish(running, "error", internalFailure, used)
        const sent = running.consumed === undefined && running.sent
        return finish(running, "cancelled", undefined, sent ? counting.estimate(running.call, []) : used)
      }

      const call = <A, E, R>(
        call: ModelCall,
        respond: (answer: CompletedCall | StreamingCall) => Effect.Effect<A, E, R>
      ): Effect.Effect<A, E | GatewayError, R> =>
        Effect.uninterruptibleMask(
          Effect.fnUntraced(function* (restore) {
            const span = tracing === undefined ? undefined : openCall(tracing, call)
            const admitted = span === undefined ? admit(call) : within(span, "reserve", () => admit(call))
            const { model, reservation } = yield* Effect.tapError(admitted, (error) =>
              Effect.sync(() => {
                countRefusal(call.operation, error.code, context)
                if (span !== undefined) endRefused(span, error)
              })
            )
            inFlight++
            const startedAt = now()
            const running: RunningCall = {
              call,
              callId: uuidv7(startedAt),
              startedAt,
              reservation,
              guardrails: [],
              price: model.price,
              sent: false,
              consumed: undefined,
              served: undefined,
              firstByteAt: undefined,
              span,
              ending: false
            }
            const policy = guardrails.policy(tenantOf(call.caller), organizationOf(call), {
              principal: call.caller,
              requestId: call.requestId
            })
            const governed = Effect.flatMap(answer(running, policy), (answered) =>
              answered._tag === "Buffered"
                ? Effect.flatMap(completeBuffered(running, answered, policy), respond)
                : respondStreaming(running, answered, policy, respond)
            )
            return yield* Effect.onExit(restore(governed), (exit) => conclude(running, exit))
          })
        )

      const respondStreaming = <A, E, R>(
        running: RunningCall,
        answered: StreamedAnswer,
        policy: GuardrailPolicy | undefined,
        respond: (answer: StreamingCall) => Effect.Effect<A, E, R>
      ): Effect.Effect<A, E, R> => {
        let started = false
        const stream = streaming(running, answered, policy)
        const watched: StreamingCall = {
          ...stream,
          start: (consumer: ByteConsumer): ByteControl => {
            started = true
            return stream.start(consumer)
          }
        }
        return Effect.onExit(respond(watched), () => (started ? Effect.void : abandon(running, answered.cancel())))
      }

      return ModelCalls.of({
        call,
        admitUpload: (caller, operation) =>
          Effect.tapError(admitUpload(caller), (error) =>
            Effect.sync(() => countRefusal(operation, error.code, context))
          ),
        inFlight: () => inFlight
      })
    })
  )

const statusOf = (error: GatewayError | undefined): Ending["status"] =>
  error === undefined ? "success" : error._tag === "GuardrailBlocked" ? "blocked" : "error"

/** The texts of an answer and the answer with others in their places; undefined: it is sound or image, not language. */
const answeredTexts = (body: Buffer, contentType: string) => {
  if (contentType.startsWith("application/json")) {
    const found = answerTexts(JSON.parse(body.toString("utf8")) as JsonObject)
    return {
      texts: found.texts,
      replaced: (texts: ReadonlyArray<string>) => Buffer.from(JSON.stringify(found.replaced(texts)))
    }
  }
  if (!contentType.startsWith("text/")) return undefined
  return {
    texts: [body.toString("utf8")],
    replaced: ([text]: ReadonlyArray<string>) => (text === undefined ? body : Buffer.from(text))
  }
}
