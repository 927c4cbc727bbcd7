import { Context, type Effect } from "effect"
import type { Unavailable } from "#domain/errors.ts"
import type { Nanos } from "#domain/money.ts"

/** Usage and recorded spend of one organization; named as in the billing export. */
export interface OrganizationUsageRow {
  readonly org: string
  readonly tenant: string
  readonly requests: number
  readonly promptTokens: number
  readonly completionTokens: number
  readonly spend: Nanos
}

/** What the organizations of all tenants used (management-api.md, "v1", rule 4). */
export class OrganizationUsage extends Context.Service<
  OrganizationUsage,
  {
    /**
     * Sums of the UTC days from `startDay` to `endDay` (YYYY-MM-DD, both included), in the order of the organizations.
     * A tenant that cannot be read is left out, and `partial` says so.
     */
    readonly window: (
      startDay: string,
      endDay: string
    ) => Effect.Effect<{ readonly rows: ReadonlyArray<OrganizationUsageRow>; readonly partial: boolean }, Unavailable>
  }
>()("sluice/billing/OrganizationUsage") {}
