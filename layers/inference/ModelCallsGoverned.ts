import { Cause, Clock, Effect, Exit, FiberSet, Layer } from "effect"
import { mostUsage } from "#domain/demand.ts"
import { type GatewayError, internalFailure, isGatewayError, modelNotFound, Unavailable } from "#domain/errors.ts"
import type { JsonObject } from "#domain/json.ts"
import { uuidv7 } from "#domain/ids.ts"
import type { KeyPolicy } from "#domain/principal.ts"
import { tenantOf } from "#domain/principal.ts"
import { answerTexts, promptTexts } from "#domain/prompt-texts.ts"
import { tokenUpperBound } from "#domain/tokens.ts"
import { countCall, countRefusal } from "#domain/telemetry.ts"
import { completionTokens, costOf, promptTokens, totalTokens, type Usage, usageOf } from "#domain/usage.ts"
import { type Ending, finishCall, type RunningCall } from "#layers/inference/RunningCall.ts"
import { guardStream } from "#layers/inference/guarded-stream.ts"
import { BudgetLedger, type Demand } from "#services/budgets/BudgetLedger.ts"
import { GuardrailEngine, type GuardrailPolicy } from "#services/guardrails/GuardrailEngine.ts"
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
  type RoutableModel,
  type StreamControl,
  type StreamedAnswer,
  type StreamEnd
} from "#services/inference/ProviderRouter.ts"
import { TokenCounter } from "#services/tokens/TokenCounter.ts"
import { UsageLedger } from "#services/usage/UsageLedger.ts"

const overloaded = new Unavailable({
  code: "overloaded",
  message: "The gateway is handling as many calls as it may.",
  retryAfter: 1
})

const doneEvent = Buffer.from("data: [DONE]\n\n")

const keyOf = (call: ModelCall): KeyPolicy | undefined => (call.caller._tag === "ApiKey" ? call.caller.key : undefined)

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
      const ledger = yield* BudgetLedger
      const usageLedger = yield* UsageLedger
      const guardrails = yield* GuardrailEngine
      const tokens = yield* TokenCounter
      // Endings that outlive their request: the scope waits for them, so that a shutdown loses none.
      const runEnding = yield* FiberSet.makeRuntime<never, void, never>()
      const context = yield* Effect.context<never>()
      const now = () => clock.currentTimeMillisUnsafe()
      let inFlight = 0

      const demandOf = (model: RoutableModel, call: ModelCall, prompt: number): Demand => {
        const { maxOutputTokens, price } = model
        const most = mostUsage(call.operation, call.body, prompt, { maxOutputTokens, price, files: call.files ?? [] })
        return { nanos: price === undefined ? 0n : costOf(price, most), tokens: totalTokens(most) }
      }

      /** Exact, unless the counter is swamped: then the bound. */
      const countPrompt = (call: ModelCall): Effect.Effect<number> =>
        Effect.map(
          Effect.catch(tokens.countRequest(call.body), () => Effect.succeed(call.promptBound)),
          (counted) => Math.min(counted, call.promptBound)
        )

      const countTexts = (texts: ReadonlyArray<string>): Effect.Effect<number> =>
        texts.length === 0
          ? Effect.succeed(0)
          : Effect.catch(tokens.count(texts), () =>
              Effect.succeed(texts.reduce((sum, text) => sum + tokenUpperBound(text), 0))
            )

      /** Reserves a bound that costs no counting; only where that is refused is the prompt counted exactly. */
      const reserve = (policy: KeyPolicy, model: RoutableModel, call: ModelCall) =>
        Effect.catchTag(
          ledger.reserve(policy.limits, demandOf(model, call, call.promptBound)),
          "RateLimited",
          (refused) =>
            // A count cannot help against the number of requests.
            refused.code === "rate_limit_exceeded"
              ? Effect.fail(refused)
              : Effect.flatMap(countPrompt(call), (counted) => {
                  if (counted >= call.promptBound) return Effect.fail(refused)
                  return ledger.reserve(policy.limits, demandOf(model, call, counted))
                })
        )

      const estimate = (running: RunningCall, texts: ReadonlyArray<string>): Effect.Effect<Usage> =>
        Effect.zipWith(countPrompt(running.call), countTexts(texts), (input, output) =>
          usageOf({ input, output, estimated: true })
        )

      /** Settles, journals, and does so once: the first ending wins. */
      const settleAndRecord = (running: RunningCall, ending: Ending): Effect.Effect<void> => {
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
        return usageLedger.record(outcome)
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
        if (end.usage !== undefined) return Effect.succeed(end.usage)
        const text = end.text()
        return text === "" && end.failure !== undefined ? nothingUsed : estimate(running, [text])
      }

      const checkRequest = Effect.fnUntraced(function* (running: RunningCall, policy: GuardrailPolicy) {
        const found = promptTexts(running.call.body)
        const verdict = yield* policy.check("pre", found.texts)
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
        const verdict = yield* policy.check("post", found.texts)
        running.guardrails.push(...verdict.events)
        if (verdict.blocked !== undefined) return verdict.blocked
        return verdict.texts === found.texts ? body : found.replaced(verdict.texts)
      })

      /** Where the wire knows images or seconds but no tokens, the prompt's are counted (`Usage.estimated`). */
      const usageOfAnswer = (running: RunningCall, { texts, usage }: BufferedAnswer): Effect.Effect<Usage> =>
        usage === undefined
          ? estimate(running, texts())
          : usage.estimated && totalTokens(usage) === 0
            ? Effect.map(countPrompt(running.call), (input) => ({ ...usage, input }))
            : Effect.succeed(usage)

      const completeBuffered = Effect.fnUntraced(function* (
        running: RunningCall,
        answer: BufferedAnswer,
        policy: GuardrailPolicy | undefined
      ) {
        running.firstByteAt = now()
        const usage = yield* usageOfAnswer(running, answer)
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
                  runEnding
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
        running.sent = true
        const answered = yield* router.route({
          operation: call.operation,
          model: call.model,
          body,
          stream: call.stream,
          wantsUsage: call.wantsUsage,
          requestId: call.requestId,
          ...(call.headers === undefined ? {} : { headers: call.headers }),
          ...(call.files === undefined ? {} : { files: call.files })
        })
        running.served = answered.served
        return answered
      })

      /** Whatever the fiber died of, the call is settled and recorded; a prompt that had left is charged. */
      const conclude = (running: RunningCall, exit: Exit.Exit<unknown, unknown>): Effect.Effect<void> => {
        if (running.ending) return Effect.void
        if (Exit.isSuccess(exit)) return finish(running, "success", undefined, nothingUsed)
        const failure = exit.cause.reasons.find((reason) => reason._tag === "Fail")?.error
        if (isGatewayError(failure)) return finish(running, statusOf(failure), failure, nothingUsed)
        if (!Cause.hasInterrupts(exit.cause)) return finish(running, "error", internalFailure, nothingUsed)
        return finish(running, "cancelled", undefined, running.sent ? estimate(running, []) : nothingUsed)
      }

      /** What must hold before anything is done for a call: a model that it may use, room, and allowance. */
      const admit = Effect.fnUntraced(function* (call: ModelCall) {
        const key = keyOf(call)
        if (key?.models !== undefined && !key.models.has(call.model)) return yield* modelNotFound(call.model)
        const model = router.find(call.model)
        if (model === undefined) return yield* modelNotFound(call.model)
        if (inFlight >= options.maxInFlight) return yield* overloaded
        yield* usageLedger.admit
        const reservation = key === undefined || key.limits.length === 0 ? undefined : yield* reserve(key, model, call)
        return { model, reservation }
      })

      const call = <A, E, R>(
        call: ModelCall,
        respond: (answer: CompletedCall | StreamingCall) => Effect.Effect<A, E, R>
      ): Effect.Effect<A, E | GatewayError, R> =>
        Effect.uninterruptibleMask(
          Effect.fnUntraced(function* (restore) {
            const { model, reservation } = yield* Effect.tapError(admit(call), (error) =>
              Effect.sync(() => countRefusal(call.operation, error.code, context))
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
              served: undefined,
              firstByteAt: undefined,
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

      return ModelCalls.of({ call, inFlight: () => inFlight })
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
