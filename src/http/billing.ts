import { DateTime, Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { Api } from "#api/Api.ts"
import { instantText } from "#domain/instants.ts"
import { dollarsNumber, type Nanos } from "#domain/money.ts"
import { BillingExport } from "#services/billing/BillingExport.ts"
import { OrganizationUsage } from "#services/billing/OrganizationUsage.ts"

const defaultLimit = 100
const windowDays = { "7d": 7, "30d": 30, "90d": 90 } as const

const usageOf = (row: {
  readonly org: string
  readonly tenant: string
  readonly requests: number
  readonly promptTokens: number
  readonly completionTokens: number
  readonly spend: Nanos
}) => ({
  org: row.org,
  tenant: row.tenant,
  requests: row.requests,
  prompt_tokens: row.promptTokens,
  completion_tokens: row.completionTokens,
  spend: dollarsNumber(row.spend)
})

export const BillingHandlers = HttpApiBuilder.group(
  Api,
  "billing",
  Effect.fn(function* (handlers) {
    const billing = yield* BillingExport
    const organizations = yield* OrganizationUsage
    return handlers.handleAll({
      export: Effect.fnUntraced(function* ({ query }) {
        const cursor = query.cursor === "" ? undefined : query.cursor
        const page = yield* billing.page(cursor, query.limit ?? defaultLimit)
        return {
          version: "v1" as const,
          records: page.records.map((record) => ({
            period_start: instantText(record.periodStart),
            period_end: instantText(record.periodEnd),
            ...usageOf(record)
          })),
          next_cursor: page.next ?? "",
          resume_cursor: page.resume ?? ""
        }
      }),
      organizations: Effect.fnUntraced(function* ({ query }) {
        const name = query.window ?? "30d"
        const now = yield* DateTime.now
        const end = DateTime.formatIsoDate(now)
        const start = DateTime.formatIsoDate(DateTime.subtract(now, { days: windowDays[name] - 1 }))
        const { partial, rows } = yield* organizations.window(start, end)
        return { window: { name, start_date: start, end_date: end }, orgs: rows.map(usageOf), partial }
      })
    })
  })
)
