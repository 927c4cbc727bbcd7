/** What must hold before anything is done for a call. */
import { Effect } from "effect"
import { endUserOf } from "#domain/chat.ts"
import { type GatewayError, modelNotFound, PermissionDenied, type RateLimited, Unavailable } from "#domain/errors.ts"
import type { Limit } from "#domain/limits.ts"
import type { KeyPolicy } from "#domain/principal.ts"
import { costOf, totalTokens } from "#domain/usage.ts"
import type { Counting } from "#layers/inference/counting.ts"
import { mostUsage } from "#domain/demand.ts"
import type { BudgetLedger, Demand } from "#services/budgets/BudgetLedger.ts"
import type { AlertsShape } from "#services/callbacks/Alerts.ts"
import type { ModelCall } from "#services/inference/ModelCalls.ts"
import type { ProviderRouter, RoutableModel } from "#services/inference/ProviderRouter.ts"
import type { CustomerPolicies } from "#services/people/CustomerPolicies.ts"
import type { UsageLedger } from "#services/usage/UsageLedger.ts"

const overloaded = new Unavailable({
  code: "overloaded",
  message: "The gateway is handling as many calls as it may.",
  retryAfter: 1
})

const customerBlocked = new PermissionDenied({
  code: "insufficient_permissions",
  message: "The customer that this call is made for is blocked.",
  param: "user"
})

/** The key that a call came with; undefined for operators. */
const keyOf = ({ caller }: Pick<ModelCall, "caller">): KeyPolicy | undefined =>
  caller._tag === "ApiKey" ? caller.key : undefined

const nothing: Demand = { nanos: 0n, tokens: 0 }

/** The limits of the key's chain that a call has still to fit. */
const openLimits = (key: KeyPolicy, call: ModelCall): ReadonlyArray<Limit> =>
  call.counted === true ? key.limits.filter(({ kind }) => kind !== "requests") : key.limits

export interface AdmissionServices {
  readonly router: ProviderRouter["Service"]
  readonly ledger: BudgetLedger["Service"]
  readonly usageLedger: UsageLedger["Service"]
  readonly customers: CustomerPolicies["Service"]
  readonly counting: Counting
  readonly alerts: AlertsShape
  /** Whether as many calls are running as may. */
  readonly isFull: () => boolean
}

/** Admits a call to a model that it may use, with room for its record and its worst case reserved; or says why not. */
export const makeAdmission = ({
  alerts,
  counting,
  customers,
  isFull,
  ledger,
  router,
  usageLedger
}: AdmissionServices) => {
  const demandOf = (model: RoutableModel, call: ModelCall, prompt: number): Demand => {
    const { maxOutputTokens, price } = model
    const most = mostUsage(call.operation, call.body, prompt, { maxOutputTokens, price, files: call.files ?? [] })
    return { nanos: price === undefined ? 0n : costOf(price, most), tokens: totalTokens(most) }
  }

  const refusedForGood = (refused: RateLimited): Effect.Effect<never, RateLimited> => {
    if (refused.code === "budget_exceeded" && refused.limit !== undefined) alerts.budgetRefused(refused.limit)
    return Effect.fail(refused)
  }

  /** Reserves a bound that costs no counting; only where that is refused is the prompt counted exactly. */
  const reserve = (limits: ReadonlyArray<Limit>, model: RoutableModel, call: ModelCall) =>
    Effect.catchTag(ledger.reserve(limits, demandOf(model, call, call.promptBound)), "RateLimited", (refused) =>
      // A count cannot help against the number of requests.
      refused.code === "rate_limit_exceeded"
        ? Effect.fail(refused)
        : Effect.flatMap(counting.countPrompt(call), (counted) => {
            if (counted >= call.promptBound) return refusedForGood(refused)
            return Effect.catchTag(
              ledger.reserve(limits, demandOf(model, call, counted)),
              "RateLimited",
              refusedForGood
            )
          })
    )

  /** The limits of the key's chain and of the customer that the call is made for. */
  const limitsOf = (key: KeyPolicy, call: ModelCall): Effect.Effect<ReadonlyArray<Limit>, GatewayError> => {
    const id = endUserOf(call.body)
    const own = openLimits(key, call)
    if (id === undefined) return Effect.succeed(own)
    const endUser = { tenant: key.tenant, organizationId: key.organizationId, id }
    const known = customers.known(endUser)
    if (known === null) return Effect.succeed(own)
    return Effect.flatMap(
      known === undefined ? customers.find(endUser) : Effect.succeed(known),
      (customer): Effect.Effect<ReadonlyArray<Limit>, GatewayError> => {
        if (customer === null) return Effect.succeed(own)
        if (customer.blocked) return Effect.fail(customerBlocked)
        if (customer.models?.has(call.model) === false) return Effect.fail(modelNotFound(call.model))
        return Effect.succeed([...own, ...customer.limits])
      }
    )
  }

  /** What must hold before anything is done for a call: a model that it may use, room, and allowance. */
  const admit = Effect.fnUntraced(function* (call: ModelCall) {
    const key = keyOf(call)
    if (key?.models !== undefined && !key.models.has(call.model)) return yield* modelNotFound(call.model)
    const model = router.find(call.model)
    if (model === undefined) return yield* modelNotFound(call.model)
    if (isFull()) return yield* overloaded
    yield* usageLedger.admit
    if (key === undefined) return { model, reservation: undefined }
    const limits = yield* limitsOf(key, call)
    return { model, reservation: limits.length === 0 ? undefined : yield* reserve(limits, model, call) }
  })

  /** {@link ModelCalls.admitUpload} */
  const admitUpload = Effect.fnUntraced(function* (caller: ModelCall["caller"]) {
    const key = keyOf({ caller })
    if (isFull()) return yield* overloaded
    yield* usageLedger.admit
    if (key === undefined || key.limits.length === 0) return
    const reservation = yield* Effect.catchTag(ledger.reserve(key.limits, nothing), "RateLimited", refusedForGood)
    reservation.release()
  })

  return { admit, admitUpload }
}
