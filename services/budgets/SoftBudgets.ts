import { Context, type Effect } from "effect"
import type { SqlError } from "effect/sql/SqlError"
import type { LimitOwner } from "#domain/limits.ts"
import type { Nanos } from "#domain/money.ts"
import type { Charge } from "#services/budgets/BudgetLedger.ts"

/** Somebody's spending has passed a soft budget (`budget.soft_exceeded`); nothing is refused for it. */
export interface SoftCrossing {
  readonly owner: LimitOwner
  /** The row id of the owner. */
  readonly ownerId: string
  readonly tenant: string
  readonly organizationId: string | null
  readonly softBudget: Nanos
  readonly spent: Nanos
  /** Unix milliseconds; 0 for a budget that never starts anew. */
  readonly windowStart: number
}

/** The soft budgets of everybody on the chain of a call, and what budget tiers have been charged. */
export class SoftBudgets extends Context.Service<
  SoftBudgets,
  {
    /**
     * Counts charges to the budget tiers of their owners, and tells which soft budgets they have taken their owners past.
     * To be called once in the transaction that has just posted them (`BudgetLedger.post`): each crossing is then
     * reported once, whichever process posts.
     */
    readonly charged: (charges: ReadonlyArray<Charge>) => Effect.Effect<ReadonlyArray<SoftCrossing>, SqlError>
  }
>()("sluice/budgets/SoftBudgets") {}
