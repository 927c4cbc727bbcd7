/** Organizations (management-api.md, "organization"). */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema } from "effect/http-api"
import { Enveloped, JsonBody, ManagementAccess, operation } from "#api/access.ts"
import { AnyObject, FreeObject, nullable, RequiredText, ShortText } from "#api/fields.ts"
import { limits, listOf, membership, paging, planLimits, shownLimits } from "#api/people-fields.ts"

const Organization = Schema.Struct({
  id: Schema.String,
  organization_id: Schema.String,
  alias: Schema.String,
  name: Schema.String,
  organization_alias: Schema.String,
  metadata: AnyObject,
  member_count: Schema.Int,
  team_count: Schema.Int,
  spend: Schema.Finite,
  total_spend: Schema.Finite,
  ...shownLimits,
  created_at: Schema.String
}).annotate({ identifier: "Organization" })

const OrganizationCreation = Schema.Struct({
  organization_alias: RequiredText,
  metadata: nullable(FreeObject),
  ...limits
}).annotate({ identifier: "OrganizationCreation" })

/** An absent field leaves the stored value untouched; null clears it. */
const OrganizationUpdate = Schema.Struct({
  organization_id: RequiredText,
  organization_alias: Schema.optionalKey(RequiredText),
  metadata: nullable(FreeObject),
  ...limits
}).annotate({ identifier: "OrganizationUpdate" })

const OrganizationMembership = Schema.Struct({ organization_id: nullable(ShortText), ...membership }).annotate({
  identifier: "OrganizationMembership"
})

const TierApplication = Schema.Struct({
  external_id: RequiredText,
  override: nullable(Schema.Struct(planLimits))
}).annotate({ identifier: "TierApplication" })

/** What binds the organization after the tier was applied. */
const EffectiveLimits = Schema.Struct({
  organization_id: Schema.String,
  external_id: Schema.String,
  max_budget: shownLimits.max_budget,
  soft_budget: shownLimits.soft_budget,
  rpm_limit: shownLimits.rpm_limit,
  tpm_limit: shownLimits.tpm_limit,
  models: shownLimits.models
}).annotate({ identifier: "EffectiveLimits" })

export class OrganizationGroup extends HttpApiGroup.make("organization")
  .add(
    HttpApiEndpoint.post("applyTier", "/management/organizations/:id/apply_tier", {
      params: { id: ShortText },
      payload: TierApplication,
      success: EffectiveLimits
    }).annotateMerge(operation("control_plane", 200, 400, 401, 403, 404)),
    HttpApiEndpoint.post("new", "/organization/new", {
      payload: OrganizationCreation,
      success: Schema.Struct({ organization_id: Schema.String }).pipe(HttpApiSchema.status(201))
    }).annotateMerge(operation("administrator", 201, 400, 401)),
    HttpApiEndpoint.post("update", "/organization/update", {
      payload: OrganizationUpdate,
      success: Schema.Struct({ updated: Schema.Boolean })
    }).annotateMerge(operation("administrator", 200, 401, 404)),
    HttpApiEndpoint.post("delete", "/organization/delete", {
      payload: Schema.Struct({ organization_id: RequiredText }).annotate({ identifier: "OrganizationDeletion" }),
      success: Schema.Struct({ deleted: Schema.Boolean })
    }).annotateMerge(operation("administrator", 200, 401, 404)),
    HttpApiEndpoint.post("memberAdd", "/organization/member_add", {
      payload: OrganizationMembership,
      success: Schema.Struct({ added: Schema.Boolean })
    }).annotateMerge(operation("administrator", 200, 401, 404)),
    HttpApiEndpoint.post("memberDelete", "/organization/member_delete", {
      payload: OrganizationMembership,
      success: Schema.Struct({ removed: Schema.Boolean })
    }).annotateMerge(operation("administrator", 200, 401, 404)),
    HttpApiEndpoint.get("info", "/organization/info", {
      query: { organization_id: ShortText },
      success: Organization
    }).annotateMerge(operation("administrator_read", 200, 401, 404)),
    HttpApiEndpoint.get("list", "/organization/list", {
      query: paging,
      success: listOf(Organization)
    }).annotateMerge(operation("administrator_read", 200, 401))
  )
  .middleware(JsonBody)
  .middleware(ManagementAccess)
  .middleware(Enveloped) {}
