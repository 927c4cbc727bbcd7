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

/** `budgets_charged` of migrations/public/0024. */
export const layer: Layer.Layer<SoftBudgets, never, SqlClient.SqlClient> = Layer.effect(
  SoftBudgets,
  Effect.map(SqlClient.SqlClient, (sql) =>
    SoftBudgets.of({
      charged: (charges) => {
        const items = charges.map(({ account, nanos, windowStart }) => ({
          a: account,
          s: windowStart,
          c: nanos.toString()
        }))
        return items.length === 0
          ? Effect.succeed([])
          : Effect.map(
              sql<CrossingRow>`SELECT * FROM public.budgets_charged(${JSON.stringify(items)}::jsonb)`,
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
