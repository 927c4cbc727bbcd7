/** The catalogue of plan tiers (management-api.md, "tier"). */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema } from "effect/http-api"
import { Enveloped, JsonBody, ManagementAccess, operation } from "#api/access.ts"
import { nullable, RequiredText, ShortText, text } from "#api/fields.ts"
import { planLimits, shownLimits } from "#api/people-fields.ts"

const PlanTier = Schema.Struct({
  external_id: Schema.String,
  slug: text,
  max_budget: shownLimits.max_budget,
  soft_budget: shownLimits.soft_budget,
  rpm_limit: shownLimits.rpm_limit,
  tpm_limit: shownLimits.tpm_limit,
  models: shownLimits.models,
  created_at: Schema.String
})

/** An absent field leaves what the tier has; null means that the plan sets no such limit. */
const PlanTierFields = Schema.Struct({
  external_id: RequiredText,
  slug: nullable(ShortText),
  ...planLimits
}).annotate({ identifier: "PlanTierFields" })

export class TierGroup extends HttpApiGroup.make("tier")
  .add(
    HttpApiEndpoint.post("put", "/management/tiers", {
      payload: PlanTierFields,
      success: [
        PlanTier.annotate({ identifier: "PlanTier" }).pipe(HttpApiSchema.status(201)),
        PlanTier.annotate({ identifier: "PlanTierUpdated" }).pipe(HttpApiSchema.status(200))
      ]
    }).annotateMerge(operation("control_plane", 200, 201, 400, 401, 403))
  )
  .middleware(JsonBody)
  .middleware(ManagementAccess)
  .middleware(Enveloped) {}
