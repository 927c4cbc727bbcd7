import { Effect } from "effect"
import type { SqlClient, SqlError } from "effect/sql"
import { invalidValue, type ValidationFailed } from "#domain/errors.ts"

/**
 * Inside a transaction that binds something to a budget tier: fails where the tenant has no such tier, and keeps it from
 * being deleted until the transaction ends. Null and undefined name none.
 */
export const requireBudgetTier = (
  sql: SqlClient.SqlClient,
  tenant: string,
  budgetId: string | null | undefined
): Effect.Effect<void, ValidationFailed | SqlError.SqlError> =>
  budgetId === null || budgetId === undefined
    ? Effect.void
    : Effect.flatMap(
        sql`SELECT 1 FROM public.budgets WHERE tenant = ${tenant} AND budget_id = ${budgetId} FOR KEY SHARE`,
        (rows) =>
          rows.length > 0 ? Effect.void : Effect.fail(invalidValue("budget_id", "There is no such budget tier."))
      )
