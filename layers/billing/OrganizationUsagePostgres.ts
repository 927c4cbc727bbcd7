import { Effect, Layer, Result } from "effect"
import { SqlClient } from "effect/sql"
import { nanosFromDollars } from "#domain/money.ts"
import { publicTenant } from "#domain/principal.ts"
import { compareText, orgOf } from "#layers/billing/organizations.ts"
import { OrganizationUsage, type OrganizationUsageRow } from "#services/billing/OrganizationUsage.ts"
import { orUnavailable } from "#services/storage/outage.ts"
import { Tenants } from "#services/tenants/Tenants.ts"
import { UsageLedger } from "#services/usage/UsageLedger.ts"

interface SumRow {
  readonly organization_id: string
  readonly requests: string
  readonly prompt_tokens: string
  readonly completion_tokens: string
  readonly spend: string
}

/** Tenants that are read at once. */
const PARALLEL = 4

const nothing = { requests: 0, promptTokens: 0, completionTokens: 0, spend: 0n }

const isZero = (row: OrganizationUsageRow): boolean =>
  row.requests === 0 && row.spend === 0n && row.promptTokens === 0 && row.completionTokens === 0

const byOrg = (a: OrganizationUsageRow, b: OrganizationUsageRow): number =>
  compareText(a.org, b.org) || compareText(a.tenant, b.tenant)

/** Sums over `organization_usage` of every tenant: at most days times organizations rows, never the log. */
export const layer: Layer.Layer<OrganizationUsage, never, SqlClient.SqlClient | Tenants | UsageLedger> = Layer.effect(
  OrganizationUsage,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const tenants = yield* Tenants
    const usage = yield* UsageLedger
    const everybody = [publicTenant, ...tenants.slugs]

    const readTenant = Effect.fnUntraced(function* (tenant: string, startDay: string, endDay: string) {
      const schema = yield* tenants.schemaOf(tenant)
      const rows = yield* sql.unsafe<SumRow>(
        `SELECT organization_id, sum(requests)::text AS requests, sum(prompt_tokens)::text AS prompt_tokens,
          sum(completion_tokens)::text AS completion_tokens, sum(spend)::text AS spend
        FROM ${schema}.organization_usage WHERE day BETWEEN $1::text::date AND $2::text::date
        GROUP BY organization_id`,
        [startDay, endDay]
      )
      const used = rows.map((row): OrganizationUsageRow => ({
        org: orgOf(row.organization_id, tenant),
        tenant,
        requests: Number(row.requests),
        promptTokens: Number(row.prompt_tokens),
        completionTokens: Number(row.completion_tokens),
        spend: nanosFromDollars(row.spend) ?? 0n
      }))
      // A tenant without usage is there all the same.
      return used.length === 0 ? [{ org: tenant, tenant, ...nothing }] : used
    })

    const window = Effect.fn("OrganizationUsage.window")(function* (startDay: string, endDay: string) {
      yield* usage.flush
      const found = yield* Effect.forEach(
        everybody,
        (tenant) =>
          readTenant(tenant, startDay, endDay).pipe(
            orUnavailable,
            Effect.catchDefect((defect) => Effect.fail(defect)),
            Effect.tapError((error) =>
              Effect.logWarning(`The usage of ${tenant === "" ? "the public scope" : tenant} could not be read`, error)
            ),
            Effect.result
          ),
        { concurrency: PARALLEL }
      )
      const rows = found
        .flatMap((result) => (Result.isSuccess(result) ? result.success : []))
        .filter((row) => row.org !== "" || (!tenants.dormant && !isZero(row)))
      return { rows: rows.sort(byOrg), partial: found.some(Result.isFailure) }
    })

    return OrganizationUsage.of({ window })
  })
)
