import { Cause, Clock, Effect, Exit, Layer } from "effect"
import { requestedTokens } from "#domain/chat.ts"
import {
  type GatewayError,
  internalFailure,
  isGatewayError,
  modelNotFound,
  type RateLimited,
  UpstreamFailed
} from "#domain/errors.ts"
import { uuidv7 } from "#domain/ids.ts"
import { isJsonObject, type Json } from "#domain/json.ts"
import type { Limit } from "#domain/limits.ts"
import { costOf, type Usage, usageOf } from "#domain/usage.ts"
import { endCall, openCall } from "#layers/inference/call-spans.ts"
import { makeCounting } from "#layers/inference/counting.ts"
import { finishCall, type RunningCall, tellOutcome } from "#layers/inference/RunningCall.ts"
import { BudgetLedger } from "#services/budgets/BudgetLedger.ts"
import { Alerts } from "#services/callbacks/Alerts.ts"
import { type GuardrailAnswer, GuardrailModels, type GuardrailQuestion } from "#services/guardrails/GuardrailModels.ts"
import type { ModelCall } from "#services/inference/ModelCalls.ts"
import { type BufferedAnswer, ProviderRouter, type RoutableModel } from "#services/inference/ProviderRouter.ts"
import { Tracing } from "#services/telemetry/Tracing.ts"
import { TokenCounter } from "#services/tokens/TokenCounter.ts"
import { journalFull, UsageLedger } from "#services/usage/UsageLedger.ts"

const unusable = new UpstreamFailed({
  code: "upstream_error",
  message: "The model gave an answer that no guardrail can read."
})

const decoded = (answer: BufferedAnswer): Effect.Effect<GuardrailAnswer, UpstreamFailed> => {
  try {
    const body: Json = JSON.parse(answer.body.toString("utf8"))
    if (isJsonObject(body)) return Effect.succeed({ body, texts: answer.texts() })
  } catch {
    // Said below.
  }
  return Effect.fail(unusable)
}

const make = Effect.gen(function* () {
  const clock = yield* Clock.Clock
  const router = yield* ProviderRouter
  const ledger = yield* BudgetLedger
  const usageLedger = yield* UsageLedger
  const tokens = yield* TokenCounter
  const counting = makeCounting(tokens)
  const tracing = yield* Tracing
  const alerts = yield* Alerts
  const context = yield* Effect.context<never>()
  const now = () => clock.currentTimeMillisUnsafe()

  const budgetsOf = ({ caller: { principal } }: GuardrailQuestion): ReadonlyArray<Limit> =>
    principal._tag === "ApiKey" ? principal.key.limits.filter(({ kind }) => kind === "budget") : []

  const refusedForGood = (refused: RateLimited): Effect.Effect<never, RateLimited> => {
    if (refused.code === "budget_exceeded" && refused.limit !== undefined) alerts.budgetRefused(refused.limit)
    return Effect.fail(refused)
  }

  /** As any call is reserved: by a bound that costs no counting, and where that is refused by the exact count. */
  const reserve = (question: GuardrailQuestion, model: RoutableModel, promptBound: number) => {
    const budgets = budgetsOf(question)
    if (budgets.length === 0) return Effect.succeed(undefined)
    const output = question.operation === "chat" ? (requestedTokens(question.body) ?? model.maxOutputTokens) : 0
    const ask = (input: number) => {
      const nanos = model.price === undefined ? 0n : costOf(model.price, usageOf({ input, output }))
      return ledger.reserve(budgets, { nanos, tokens: input + output })
    }
    return Effect.catchTag(ask(promptBound), "RateLimited", (refused) =>
      Effect.flatMap(
        Effect.catch(tokens.countRequest(question.body), () => Effect.succeed(promptBound)),
        (counted) =>
          counted >= promptBound
            ? refusedForGood(refused)
            : Effect.catchTag(ask(counted), "RateLimited", refusedForGood)
      )
    )
  }

  const finish = Effect.fnUntraced(function* (
    running: RunningCall,
    status: "success" | "error" | "cancelled",
    usage: Usage | undefined,
    error: GatewayError | undefined
  ) {
    const outcome = finishCall(running, { status, usage, error }, now())
    tellOutcome(outcome, alerts, context)
    yield* usageLedger.record(outcome)
    if (running.span !== undefined) endCall(running.span, outcome)
  })

  /** Whatever became of the call, it is settled and recorded; a question that had left is charged. */
  const conclude = (running: RunningCall, exit: Exit.Exit<BufferedAnswer, GatewayError>): Effect.Effect<void> => {
    if (Exit.isSuccess(exit)) {
      const answer = exit.value
      const usage =
        answer.usage === undefined
          ? counting.estimate(running.call, answer.texts())
          : Effect.succeed<Usage | undefined>(answer.usage)
      return Effect.flatMap(usage, (usage) => finish(running, "success", usage, undefined))
    }
    const failure = exit.cause.reasons.find((reason) => reason._tag === "Fail")?.error
    if (isGatewayError(failure)) return finish(running, "error", undefined, failure)
    if (!Cause.hasInterrupts(exit.cause)) return finish(running, "error", undefined, internalFailure)
    return Effect.flatMap(counting.estimate(running.call, []), (usage) =>
      finish(running, "cancelled", usage, undefined)
    )
  }

  const ask = (question: GuardrailQuestion): Effect.Effect<GuardrailAnswer, GatewayError> =>
    Effect.uninterruptibleMask(
      Effect.fnUntraced(function* (restore) {
        const model = router.find(question.model)
        if (model === undefined) return yield* modelNotFound(question.model)
        if (usageLedger.isFull()) return yield* journalFull
        const promptBound = Buffer.byteLength(JSON.stringify(question.body))
        const reservation = yield* reserve(question, model, promptBound)
        const startedAt = now()
        const call: ModelCall = {
          caller: question.caller.principal,
          requestId: question.caller.requestId,
          operation: question.operation,
          model: question.model,
          body: question.body,
          stream: false,
          wantsUsage: false,
          promptBound,
          span: question.caller.span
        }
        const span = tracing === undefined ? undefined : openCall(tracing, call)
        const running: RunningCall = {
          call,
          callId: uuidv7(startedAt),
          startedAt,
          reservation,
          guardrails: [],
          price: model.price,
          sent: true,
          consumed: undefined,
          served: undefined,
          firstByteAt: undefined,
          span,
          ending: true
        }
        const routed = router
          .route({
            operation: question.operation,
            model: question.model,
            body: question.body,
            stream: false,
            wantsUsage: false,
            requestId: question.caller.requestId,
            span
          })
          .pipe(
            Effect.flatMap((answer) => {
              running.served = answer.served
              if (answer._tag === "Buffered") return Effect.succeed(answer)
              answer.cancel()
              return Effect.fail(unusable)
            })
          )
        const answer = yield* Effect.onExit(restore(routed), (exit) => conclude(running, exit))
        return yield* decoded(answer)
      })
    )

  return GuardrailModels.of({ ask })
})

/** Guardrails' model calls over the router and the ledgers: the pipeline of `ModelCalls` without its guardrails. */
export const layer: Layer.Layer<GuardrailModels, never, ProviderRouter | BudgetLedger | UsageLedger | TokenCounter> =
  Layer.effect(GuardrailModels, make)
