import * as PgTypes from "@effect/sql-pg/PgTypes"
import { Effect, Layer, Result } from "effect"
import { SqlClient } from "effect/sql"
import { nanosFromDollars, type Nanos } from "#domain/money.ts"
import { rollupText } from "#layers/usage/rollups.ts"
import { orUnavailable } from "#services/storage/outage.ts"
import { isProvisioned, Tenants } from "#services/tenants/Tenants.ts"
import { OwnerSpend, type SpendOwner, type SpendRef } from "#services/usage/OwnerSpend.ts"
import { UsageLedger } from "#services/usage/UsageLedger.ts"

/** An array that may hold nothing but nulls, whose type the driver could not tell. */
const texts = (values: ReadonlyArray<string | null>) => Result.getOrThrow(PgTypes.array(values, PgTypes.OID.text))

interface SpendRow {
  readonly at: number
  readonly spend: string
}

/** `owner_usage` of each tenant's schema, all that a page asks for in one statement. */
export const layer: Layer.Layer<OwnerSpend, never, SqlClient.SqlClient | Tenants | UsageLedger> = Layer.effect(
  OwnerSpend,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const tenants = yield* Tenants
    const ledger = yield* UsageLedger

    const statement = (schema: string, first: number): string =>
      `SELECT t.at, sum(u.spend)::text AS spend
       FROM unnest($${first}::int4[], $${first + 1}::text[], $${first + 2}::text[]) AS t (at, id, organization_id)
       JOIN ${schema}.owner_usage u ON u.owner = $1 AND u.id = t.id
         AND (t.organization_id IS NULL OR u.organization_id = t.organization_id)
       GROUP BY t.at`

    const totals = Effect.fn("OwnerSpend.totals")(function* (owner: SpendOwner, refs: ReadonlyArray<SpendRef>) {
      const spends = Array.from<Nanos>({ length: refs.length }).fill(0n)
      if (refs.length === 0) return spends
      yield* ledger.flush
      // A tenant that is not provisioned any more has no schema to ask.
      const numbered = refs.map((ref, at) => ({ ...ref, at })).filter(({ tenant }) => isProvisioned(tenants, tenant))
      const groups = yield* Effect.forEach(
        Map.groupBy(numbered, ({ tenant }) => tenant),
        ([tenant, members]) => Effect.map(tenants.schemaOf(tenant), (schema) => ({ schema, members }))
      )
      if (groups.length === 0) return spends
      const text = groups.map(({ schema }, index) => statement(schema, 2 + 3 * index)).join(" UNION ALL ")
      const values = groups.flatMap(({ members }) => [
        members.map(({ at }) => at),
        members.map(({ id }) => rollupText(id)),
        texts(members.map(({ organizationId }) => (organizationId === undefined ? null : rollupText(organizationId))))
      ])
      const rows = yield* orUnavailable(sql.unsafe<SpendRow>(text, [owner, ...values]))
      for (const { at, spend } of rows) spends[at] = nanosFromDollars(spend) ?? 0n
      return spends
    })

    return OwnerSpend.of({ totals })
  })
)
