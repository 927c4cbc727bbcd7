/** A caller's own usage (model-api.md, "UsageReport", "UsageSummary"). */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup } from "effect/http-api"
import { Enveloped, ModelAccess, operation } from "#api/access.ts"
import { spendTotals, tokenCounts } from "#api/usage-fields.ts"

const UsageReport = Schema.Struct({
  ...spendTotals,
  ...tokenCounts
}).annotate({ identifier: "UsageReport" })

const UsageSummary = Schema.Struct({
  period_start: Schema.String,
  period_end: Schema.String,
  ...spendTotals
}).annotate({ identifier: "UsageSummary" })

export class UsageGroup extends HttpApiGroup.make("usage")
  .add(
    HttpApiEndpoint.get("report", "/v1/usage", { success: UsageReport }).annotateMerge(operation("model", 200, 401)),
    HttpApiEndpoint.get("summary", "/v1/usage/summary", { success: UsageSummary }).annotateMerge(
      operation("model", 200, 401)
    )
  )
  .middleware(ModelAccess)
  .middleware(Enveloped) {}
