/** A caller's own usage (model-api.md, "UsageReport", "UsageSummary"). */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup } from "effect/http-api"
import { Enveloped, ModelAccess, operation } from "#api/access.ts"

const UsageReport = Schema.Struct({
  total_spend: Schema.Finite,
  total_requests: Schema.Int,
  prompt_tokens: Schema.Int,
  completion_tokens: Schema.Int
}).annotate({ identifier: "UsageReport" })

const UsageSummary = Schema.Struct({
  period_start: Schema.String,
  period_end: Schema.String,
  total_spend: Schema.Finite,
  total_requests: Schema.Int
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
