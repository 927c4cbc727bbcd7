import { Effect } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import type { SqlError } from "effect/sql/SqlError"
import type * as Statement from "effect/sql/Statement"
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
  const sumOf = (
    asked: ReadonlyArray<string>,
    owned: Statement.Fragment,
    windowStart: number,
    windowEnd: number
  ): Effect.Effect<Nanos, SqlError> => {
    const parts = asked.map(
      (schema) => sql`SELECT spend FROM ${sql.literal(schema)}.daily_usage
        WHERE ${owned} AND day >= ${day(windowStart)}::date AND day < ${day(windowEnd)}::date`
    )
    return Effect.map(
      sql<{ readonly spend: string | null }>`SELECT sum(spend)::text AS spend
        FROM (${sql.join(" UNION ALL ", false)(parts)}) AS t`,
      ([row]) => nanosFromDollars(row?.spend ?? "0") ?? 0n
    )
  }

  /** A customer's account bears its row id, its usage the name of the end user within the customer's scope. */
  const sumOfCustomer = Effect.fnUntraced(function* (id: string, windowStart: number, windowEnd: number) {
    const [customer] = yield* sql<{
      readonly tenant: string
      readonly organization_id: string | null
      readonly end_user_id: string
    }>`SELECT tenant, organization_id, end_user_id FROM public.customers WHERE id = ${id}`
    if (customer === undefined) return 0n
    const owned = sql.and([
      sql`end_user_id = ${rollupText(customer.end_user_id)}`,
      ...(customer.organization_id === null ? [] : [sql`organization_id = ${customer.organization_id}`])
    ])
    return yield* sumOf([yield* tenants.schemaOf(customer.tenant)], owned, windowStart, windowEnd)
  })

  return (limit: Limit, windowStart: number, windowEnd: number): Effect.Effect<Nanos, SqlError> => {
    const column = ownerColumns[limit.owner]
    if (limit.kind !== "budget" || column === undefined || windowEnd - windowStart < 86_400_000)
      return Effect.succeed(0n)
    // A budget that starts anew has its duration behind its owner's id (domain/policy-chain.ts).
    const [id = ""] = limit.account.slice(`${limit.kind}:${limit.owner}:`.length).split("@")
    return limit.owner === "customer"
      ? sumOfCustomer(id, windowStart, windowEnd)
      : sumOf(schemas, sql`${sql.literal(column)} = ${rollupText(id)}`, windowStart, windowEnd)
  }
})
