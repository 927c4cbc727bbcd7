/** Billing export and usage of organizations (management-api.md, "v1", rules 2 and 4). */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup } from "effect/http-api"
import { Enveloped, ManagementAccess, operation } from "#api/access.ts"
import { tokenCounts } from "#api/usage-fields.ts"

const usage = {
  org: Schema.String,
  tenant: Schema.String,
  requests: Schema.Int,
  ...tokenCounts,
  spend: Schema.Finite
}

const BillingRecord = Schema.Struct({
  period_start: Schema.String,
  period_end: Schema.String,
  ...usage
}).annotate({ identifier: "BillingRecord" })

/** `next_cursor` is empty on the last page; `resume_cursor` goes on from there when more days have closed. */
const BillingPage = Schema.Struct({
  version: Schema.Literal("v1"),
  records: Schema.Array(BillingRecord),
  next_cursor: Schema.String,
  resume_cursor: Schema.String
}).annotate({ identifier: "BillingExportPage" })

const OrganizationsUsage = Schema.Struct({
  window: Schema.Struct({ name: Schema.String, start_date: Schema.String, end_date: Schema.String }),
  orgs: Schema.Array(Schema.Struct(usage)),
  partial: Schema.Boolean
}).annotate({ identifier: "OrganizationsUsage" })

export class BillingGroup extends HttpApiGroup.make("billing")
  .add(
    HttpApiEndpoint.get("export", "/management/v1/billing-export/usage", {
      query: {
        cursor: Schema.optionalKey(Schema.String),
        limit: Schema.optionalKey(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 1000 })))
      },
      success: BillingPage
    }).annotateMerge(operation("instance_admin", 200, 400, 401, 403)),
    HttpApiEndpoint.get("organizations", "/management/v1/orgs/usage", {
      query: { window: Schema.optionalKey(Schema.Literals(["7d", "30d", "90d"])) },
      success: OrganizationsUsage
    }).annotateMerge(operation("instance_admin", 200, 400, 401, 403))
  )
  .middleware(ManagementAccess)
  .middleware(Enveloped) {}
