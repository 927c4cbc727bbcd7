/** Budget tiers and the plan-tier catalogue (management-api.md, "budget", "tier"). Times are Unix milliseconds. */
import type { Nanos } from "#domain/money.ts"

/** A named set of limits that keys, users, teams, organizations and customers can each be bound to. */
export interface BudgetTier {
  readonly budgetId: string
  readonly tenant: string
  readonly name: string
  readonly maxBudget: Nanos | null
  readonly softBudget: Nanos | null
  /** `30s`, `12h`, `7d`, `1mo`; null: the budget never starts anew. */
  readonly budgetDuration: string | null
  readonly rpmLimit: number | null
  readonly tpmLimit: number | null
  readonly createdAt: number
  /** When the current window ends; null: never. */
  readonly resetAt: number | null
  /** What all that are bound to the tier have spent in the current window. */
  readonly currentSpend: Nanos
}

/** The fields to write; an absent one leaves the stored value untouched. */
export interface BudgetTierChange {
  readonly name?: string
  readonly maxBudget?: Nanos | null
  readonly softBudget?: Nanos | null
  readonly budgetDuration?: string | null
  readonly rpmLimit?: number | null
  readonly tpmLimit?: number | null
}

export interface BudgetTierDraft extends BudgetTierChange {
  readonly budgetId: string
}

/** The limits of a plan. An absent one leaves an organization's own as it is; null, or no model, lifts it. */
export interface PlanLimits {
  readonly maxBudget?: Nanos | null
  readonly softBudget?: Nanos | null
  readonly rpmLimit?: number | null
  readonly tpmLimit?: number | null
  readonly models?: ReadonlyArray<string>
}

/** A plan of the catalogue that an organization's subscription names by `externalId`. */
export interface PlanTier {
  readonly externalId: string
  readonly slug: string | null
  readonly limits: PlanLimits
  readonly createdAt: number
  readonly updatedAt: number
}

export interface PlanTierDraft {
  readonly externalId: string
  readonly slug?: string | null
  readonly limits: PlanLimits
}
