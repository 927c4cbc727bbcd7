/** What must hold before anything is done for a call. */
import { Effect } from "effect"
import { endUserOf } from "#domain/chat.ts"
import { type GatewayError, modelNotFound, PermissionDenied, type RateLimited, Unavailable } from "#domain/errors.ts"
import type { Limit } from "#domain/limits.ts"
import type { KeyPolicy } from "#domain/principal.ts"
import { costOf, totalTokens } from "#domain/usage.ts"
import type { Counting } from "#layers/inference/counting.ts"
import { mostUsage } from "#domain/demand.ts"
import type { BudgetLedger, Demand, Reservation } from "#services/budgets/BudgetLedger.ts"
import type { AlertsShape } from "#services/callbacks/Alerts.ts"
import type { ModelCall } from "#services/inference/ModelCalls.ts"
import type { ProviderRouter, RoutableModel } from "#services/inference/ProviderRouter.ts"
import type { CustomerPolicies, CustomerPolicy } from "#services/people/CustomerPolicies.ts"
import { journalFull, type UsageLedger } from "#services/usage/UsageLedger.ts"

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
const keyOf = (caller: ModelCall["caller"]): KeyPolicy | undefined =>
  caller._tag === "ApiKey" ? caller.key : undefined

const nothing: Demand = { nanos: 0n, tokens: 0 }

/** The limits of the key's chain that a call has still to fit. */
const openLimits = (key: KeyPolicy, call: ModelCall): ReadonlyArray<Limit> =>
  call.counted === true ? key.limits.filter(({ kind }) => kind !== "requests") : key.limits

/** A call that may be made: its model, and its allowance where anything limits it. */
export interface Admitted {
  readonly model: RoutableModel
  readonly reservation: Reservation | undefined
}

/** Calls are nearly always decided on at once: then what `admit` returns is an `Exit`. */
export interface Admission {
  readonly admit: (call: ModelCall) => Effect.Effect<Admitted, GatewayError>
  readonly admitUpload: (caller: ModelCall["caller"]) => Effect.Effect<void, GatewayError>
}

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
}: AdmissionServices): Admission => {
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
  const reserve = (
    limits: ReadonlyArray<Limit>,
    demand: Demand,
    model: RoutableModel,
    call: ModelCall
  ): Effect.Effect<Reservation, GatewayError> =>
    Effect.catchTag(ledger.reserve(limits, demand), "RateLimited", (refused) =>
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

  const admitWithin = (
    limits: ReadonlyArray<Limit>,
    model: RoutableModel,
    call: ModelCall
  ): Effect.Effect<Admitted, GatewayError> => {
    if (limits.length === 0) return Effect.succeed({ model, reservation: undefined })
    const demand = demandOf(model, call, call.promptBound)
    const held = ledger.tryReserve(limits, demand)
    if (held !== undefined) return Effect.succeed({ model, reservation: held })
    return Effect.map(reserve(limits, demand, model, call), (reservation) => ({ model, reservation }))
  }

  /** The call's customer adds its limits to those of the key's chain. */
  const admitFor = (
    customer: CustomerPolicy | null,
    limits: ReadonlyArray<Limit>,
    model: RoutableModel,
    call: ModelCall
  ): Effect.Effect<Admitted, GatewayError> => {
    if (customer === null) return admitWithin(limits, model, call)
    if (customer.blocked) return Effect.fail(customerBlocked)
    if (customer.models?.has(call.model) === false) return Effect.fail(modelNotFound(call.model))
    return admitWithin([...limits, ...customer.limits], model, call)
  }

  /** What must hold before anything is done for a call: a model that it may use, room, and allowance. */
  const admit = (call: ModelCall): Effect.Effect<Admitted, GatewayError> => {
    const key = keyOf(call.caller)
    if (key?.models !== undefined && !key.models.has(call.model)) return Effect.fail(modelNotFound(call.model))
    const model = router.find(call.model)
    if (model === undefined) return Effect.fail(modelNotFound(call.model))
    if (isFull()) return Effect.fail(overloaded)
    if (usageLedger.isFull()) return Effect.fail(journalFull)
    if (key === undefined) return Effect.succeed({ model, reservation: undefined })
    const limits = openLimits(key, call)
    const id = endUserOf(call.body)
    if (id === undefined) return admitWithin(limits, model, call)
    const endUser = { tenant: key.tenant, organizationId: key.organizationId, id }
    const customer = customers.known(endUser)
    return customer === undefined
      ? Effect.flatMap(customers.find(endUser), (found) => admitFor(found, limits, model, call))
      : admitFor(customer, limits, model, call)
  }

  /** {@link ModelCalls.admitUpload} */
  const admitUpload = Effect.fnUntraced(function* (caller: ModelCall["caller"]) {
    const key = keyOf(caller)
    if (isFull()) return yield* overloaded
    if (usageLedger.isFull()) return yield* journalFull
    if (key === undefined || key.limits.length === 0) return
    const reservation = yield* Effect.catchTag(ledger.reserve(key.limits, nothing), "RateLimited", refusedForGood)
    reservation.release()
  })

  return { admit, admitUpload }
}
