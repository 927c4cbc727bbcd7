import { Effect } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import type { SqlError } from "effect/sql/SqlError"
import type { Limit, LimitOwner } from "#domain/limits.ts"
import { nanosFromDollars, type Nanos } from "#domain/money.ts"
import { publicTenant } from "#domain/principal.ts"
import { rollupText } from "#layers/usage/rollups.ts"
import { Tenants } from "#services/tenants/Tenants.ts"

/** The rollup's column that names the owner of a limit. */
const ownerColumns: { readonly [O in LimitOwner]: string | undefined } = {
  key: "key_id::text",
  user: "user_id",
  team: "team_id",
  organization: "organization_id",
  customer: "end_user_id",
  deployment: undefined
}

const day = (millis: number): string => new Date(Math.min(millis, 253_402_300_799_000)).toISOString().slice(0, 10)

/**
 * What the owner of a budget had spent in the window before the budget was set, from the daily rollups: a budget set in
 * the middle of a month counts the month. Windows shorter than a day begin empty.
 */
export const recordedSpend = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const tenants = yield* Tenants
  const schemas = [...new Set(yield* Effect.forEach([publicTenant, ...tenants.slugs], tenants.schemaOf))]
  return (limit: Limit, windowStart: number, windowEnd: number): Effect.Effect<Nanos, SqlError> => {
    const column = ownerColumns[limit.owner]
    if (limit.kind !== "budget" || column === undefined || windowEnd - windowStart < 86_400_000)
      return Effect.succeed(0n)
    const id = limit.account.slice(`${limit.kind}:${limit.owner}:`.length)
    const parts = schemas.map(
      (schema) =>
        `SELECT spend FROM ${schema}.daily_usage WHERE ${column} = $1 AND day >= $2::text::date AND day < $3::text::date`
    )
    return Effect.map(
      sql.unsafe<{ readonly spend: string | null }>(
        `SELECT sum(spend)::text AS spend FROM (${parts.join(" UNION ALL ")}) AS t`,
        [rollupText(id), day(windowStart), day(windowEnd)]
      ),
      ([row]) => nanosFromDollars(row?.spend ?? "0") ?? 0n
    )
  }
})
