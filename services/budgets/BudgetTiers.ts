import { Context, type Effect } from "effect"
import type { GatewayError, Unavailable } from "#domain/errors.ts"
import type { Listed, Page, RowCaller } from "#domain/people.ts"
import type { BudgetTier, BudgetTierChange, BudgetTierDraft } from "#domain/tiers.ts"

/**
 * Budget tiers (management-api.md, "budget"). A tier's id is its caller's and unique in the tenant; it is looked up
 * within the caller's own tenant. A row outside the caller's scope is `resource_not_found`.
 */
export class BudgetTiers extends Context.Service<
  BudgetTiers,
  {
    /** A taken id is 400 `already_exists`. */
    readonly create: (draft: BudgetTierDraft, caller: RowCaller) => Effect.Effect<void, GatewayError>
    /** Reaches everything bound to the tier within a second. */
    readonly update: (
      budgetId: string,
      change: BudgetTierChange,
      caller: RowCaller
    ) => Effect.Effect<void, GatewayError>
    /** 400 `invalid_state` while something is bound to it: deleting a tier must not lift limits. */
    readonly remove: (budgetId: string, caller: RowCaller) => Effect.Effect<void, GatewayError>
    readonly find: (budgetId: string, caller: RowCaller) => Effect.Effect<BudgetTier, GatewayError>
    /** Newest first. */
    readonly list: (filter: Page, caller: RowCaller) => Effect.Effect<Listed<BudgetTier>, Unavailable>
  }
>()("sluice/budgets/BudgetTiers") {}
