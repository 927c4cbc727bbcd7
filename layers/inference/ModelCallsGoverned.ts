import { Clock, Effect, FiberSet, Layer } from "effect"
import type { GatewayError } from "#domain/errors.ts"
import { countRefusal } from "#domain/telemetry.ts"
import { makeAdmission } from "#layers/inference/admission.ts"
import { makeCounting } from "#layers/inference/counting.ts"
import { type CallContext, GovernedCall } from "#layers/inference/GovernedCall.ts"
import { BudgetLedger } from "#services/budgets/BudgetLedger.ts"
import { Alerts } from "#services/callbacks/Alerts.ts"
import { GuardrailEngine } from "#services/guardrails/GuardrailEngine.ts"
import {
  type CallListener,
  type CompletedCall,
  type ModelCall,
  ModelCalls,
  type StreamingCall
} from "#services/inference/ModelCalls.ts"
import { ProviderRouter } from "#services/inference/ProviderRouter.ts"
import { CustomerPolicies } from "#services/people/CustomerPolicies.ts"
import { Tracing } from "#services/telemetry/Tracing.ts"
import { TokenCounter } from "#services/tokens/TokenCounter.ts"
import { UsageLedger } from "#services/usage/UsageLedger.ts"

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
      const alerts = yield* Alerts
      const counting = makeCounting(yield* TokenCounter)
      const metrics = yield* Effect.context<never>()
      const load = { inFlight: 0 }
      const { admit, admitUpload } = makeAdmission({
        router,
        ledger: yield* BudgetLedger,
        usageLedger,
        customers: yield* CustomerPolicies,
        counting,
        alerts,
        isFull: () => load.inFlight >= options.maxInFlight
      })
      const context: CallContext = {
        admit,
        router,
        guardrails: yield* GuardrailEngine,
        usageLedger,
        counting,
        alerts,
        tracing: yield* Tracing,
        now: () => clock.currentTimeMillisUnsafe(),
        fork: Effect.runForkWith(metrics),
        runEnding: yield* FiberSet.makeRuntime<never, void, never>(),
        metrics,
        load
      }

      const open = (call: ModelCall, listener: CallListener): GovernedCall => {
        const governed = new GovernedCall(context, call, listener)
        governed.begin()
        return governed
      }

      const call = <A, E, R>(
        call: ModelCall,
        respond: (answer: CompletedCall | StreamingCall) => Effect.Effect<A, E, R>
      ): Effect.Effect<A, E | GatewayError, R> =>
        Effect.suspend(() => {
          let governed: GovernedCall | undefined
          const answer = Effect.callback<CompletedCall | StreamingCall, GatewayError>((resume) => {
            governed = open(call, {
              answered: (answer) => resume(Effect.succeed(answer)),
              failed: (cause) => resume(Effect.failCause(cause))
            })
          })
          return Effect.onExit(Effect.flatMap(answer, respond), () => Effect.sync(() => governed?.cancel()))
        })

      return ModelCalls.of({
        call,
        begin: (call, listener) => {
          const governed = open(call, listener)
          return () => governed.cancel()
        },
        admitUpload: (caller, operation) =>
          Effect.tapError(admitUpload(caller), (error) =>
            Effect.sync(() => countRefusal(operation, error.code, metrics))
          ),
        inFlight: () => load.inFlight
      })
    })
  )
