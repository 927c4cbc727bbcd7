import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import type { LimitOwner } from "#domain/limits.ts"
import { nanosFromDollars } from "#domain/money.ts"
import { SoftBudgets } from "#services/budgets/SoftBudgets.ts"

interface CrossingRow {
  readonly owner: LimitOwner
  readonly owner_id: string
  readonly tenant: string
  readonly organization_id: string | null
  readonly soft_budget: string
  readonly spent: bigint
  readonly window_start: bigint
}

/** `soft_budgets_crossed` of migrations/public/0011. */
export const layer: Layer.Layer<SoftBudgets, never, SqlClient.SqlClient> = Layer.effect(
  SoftBudgets,
  Effect.map(SqlClient.SqlClient, (sql) =>
    SoftBudgets.of({
      crossed: (charges) => {
        const items = charges.map(({ account, nanos, windowStart }) => ({
          a: account,
          s: windowStart,
          c: nanos.toString()
        }))
        return items.length === 0
          ? Effect.succeed([])
          : Effect.map(
              sql<CrossingRow>`SELECT * FROM public.soft_budgets_crossed(${JSON.stringify(items)}::jsonb)`,
              (rows) =>
                rows.map((row) => ({
                  owner: row.owner,
                  ownerId: row.owner_id,
                  tenant: row.tenant,
                  organizationId: row.organization_id,
                  softBudget: nanosFromDollars(row.soft_budget) ?? 0n,
                  spent: row.spent,
                  windowStart: Number(row.window_start)
                }))
            )
      }
    })
  )
)
