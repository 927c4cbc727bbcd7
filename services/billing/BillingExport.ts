import { Context, type Effect } from "effect"
import type { InternalFailure, Unavailable, ValidationFailed } from "#domain/errors.ts"
import type { Nanos } from "#domain/money.ts"

/** What one organization used on one closed UTC day. */
export interface BillingRecord {
  /** Unix milliseconds. */
  readonly periodStart: number
  readonly periodEnd: number
  /** The organization; the tenant's slug for usage without one, and empty for that of the public scope. */
  readonly org: string
  readonly tenant: string
  readonly requests: number
  readonly promptTokens: number
  readonly completionTokens: number
  readonly spend: Nanos
}

export interface BillingPage {
  readonly records: ReadonlyArray<BillingRecord>
  /** Where the next page starts; undefined on the last one of today. */
  readonly next: string | undefined
  /** Where to go on after this page, also on the last one, when more days have closed. Undefined: nothing was ever there. */
  readonly resume: string | undefined
}

/**
 * The billing export (management-api.md, "v1", rule 2): closed UTC days, ordered by day, organization and tenant. A day
 * is closed for good when it is first exported, some minutes after its end; usage that is recorded for it later counts on
 * the first open day.
 */
export class BillingExport extends Context.Service<
  BillingExport,
  {
    /**
     * A page after a cursor, at a cost that does not depend on how many pages came before. Fails for a cursor that was
     * not made here, and as a whole, naming the tenant, when one tenant cannot be read.
     */
    readonly page: (
      cursor: string | undefined,
      limit: number
    ) => Effect.Effect<BillingPage, ValidationFailed | InternalFailure | Unavailable>
  }
>()("sluice/billing/BillingExport") {}
