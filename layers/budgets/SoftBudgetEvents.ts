import { Clock, Effect, Layer } from "effect"
import { dollarsText } from "#domain/money.ts"
import { BudgetLedger, type Charge } from "#services/budgets/BudgetLedger.ts"
import { SoftBudgets } from "#services/budgets/SoftBudgets.ts"
import { Provenance } from "#services/provenance/Provenance.ts"

/** Nobody in particular: the gateway itself has noticed. */
const actor = "gateway"

/**
 * A ledger that tells of soft budgets: a charge that takes its owner past one leaves `budget.soft_exceeded` in the audit
 * trail of the owner's tenant, in the transaction that posts the charge, and whoever registered for it is told.
 */
export const layer: Layer.Layer<BudgetLedger, never, BudgetLedger | SoftBudgets | Provenance> = Layer.effect(
  BudgetLedger,
  Effect.gen(function* () {
    const ledger = yield* BudgetLedger
    const soft = yield* SoftBudgets
    const provenance = yield* Provenance
    const clock = yield* Clock.Clock

    const tell = Effect.fnUntraced(function* (charges: ReadonlyArray<Charge>) {
      const crossings = yield* soft.charged(charges)
      const byTenant = Map.groupBy(crossings, ({ tenant }) => tenant)
      // In one order everywhere, because each chain stays locked until the commit.
      for (const tenant of [...byTenant.keys()].sort()) {
        yield* provenance.append(
          tenant,
          (byTenant.get(tenant) ?? []).map((crossing) => ({
            action: "budget.soft_exceeded",
            actor,
            resourceType: crossing.owner,
            resourceId: crossing.ownerId,
            organizationId: crossing.organizationId,
            requestId: null,
            payload: {
              owner: crossing.owner,
              soft_budget: dollarsText(crossing.softBudget),
              spent: dollarsText(crossing.spent),
              window_start: crossing.windowStart === 0 ? null : new Date(crossing.windowStart).toISOString()
            },
            createdAt: clock.currentTimeMillisUnsafe()
          }))
        )
      }
    })

    return BudgetLedger.of({ ...ledger, post: (charges) => Effect.andThen(ledger.post(charges), tell(charges)) })
  })
)
