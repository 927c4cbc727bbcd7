/** Teams (management-api.md, "team"). */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema } from "effect/http-api"
import { Enveloped, JsonBody, ManagementAccess, operation } from "#api/access.ts"
import { nullable, RequiredText, ShortText, text } from "#api/fields.ts"
import { limits, listOf, membership, paging, shownLimits } from "#api/people-fields.ts"

const Team = Schema.Struct({
  id: Schema.String,
  team_id: Schema.String,
  alias: Schema.String,
  name: Schema.String,
  team_alias: Schema.String,
  org_id: text,
  org_name: text,
  organization_id: text,
  member_count: Schema.Int,
  spend: Schema.Finite,
  total_spend: Schema.Finite,
  current_spend: Schema.Finite,
  blocked: Schema.Boolean,
  status: Schema.Literals(["active", "blocked"]),
  ...shownLimits,
  created_at: Schema.String
}).annotate({ identifier: "Team" })

const TeamCreation = Schema.Struct({
  team_alias: RequiredText,
  organization_id: nullable(ShortText),
  ...limits
}).annotate({ identifier: "TeamCreation" })

/** An absent field leaves the stored value untouched; null clears it. */
const TeamUpdate = Schema.Struct({
  team_id: RequiredText,
  team_alias: Schema.optionalKey(RequiredText),
  ...limits
}).annotate({ identifier: "TeamUpdate" })

const TeamReference = Schema.Struct({ team_id: RequiredText }).annotate({ identifier: "TeamReference" })

const TeamMembership = Schema.Struct({ team_id: nullable(ShortText), ...membership }).annotate({
  identifier: "TeamMembership"
})

export class TeamGroup extends HttpApiGroup.make("team")
  .add(
    HttpApiEndpoint.post("new", "/team/new", {
      payload: TeamCreation,
      success: Schema.Struct({ team_id: Schema.String }).pipe(HttpApiSchema.status(201))
    }).annotateMerge(operation("administrator", 201, 400, 401)),
    HttpApiEndpoint.post("update", "/team/update", {
      payload: TeamUpdate,
      success: Schema.Struct({ updated: Schema.Boolean })
    }).annotateMerge(operation("administrator", 200, 401, 404)),
    HttpApiEndpoint.post("block", "/team/block", {
      payload: TeamReference,
      success: Schema.Struct({ blocked: Schema.Boolean })
    }).annotateMerge(operation("administrator", 200, 401, 404)),
    HttpApiEndpoint.post("unblock", "/team/unblock", {
      payload: TeamReference,
      success: Schema.Struct({ unblocked: Schema.Boolean })
    }).annotateMerge(operation("administrator", 200, 401, 404)),
    HttpApiEndpoint.post("delete", "/team/delete", {
      payload: TeamReference,
      success: Schema.Struct({ deleted: Schema.Boolean })
    }).annotateMerge(operation("administrator", 200, 401, 404)),
    HttpApiEndpoint.post("memberAdd", "/team/member_add", {
      payload: TeamMembership,
      success: Schema.Struct({ added: Schema.Boolean })
    }).annotateMerge(operation("administrator", 200, 401, 404)),
    HttpApiEndpoint.post("memberDelete", "/team/member_delete", {
      payload: TeamMembership,
      success: Schema.Struct({ removed: Schema.Boolean })
    }).annotateMerge(operation("administrator", 200, 401, 404)),
    HttpApiEndpoint.get("info", "/team/info", {
      query: { team_id: ShortText },
      success: Team
    }).annotateMerge(operation("administrator_read", 200, 401, 404)),
    HttpApiEndpoint.get("list", "/team/list", {
      query: { organization_id: Schema.optionalKey(ShortText), ...paging },
      success: listOf(Team)
    }).annotateMerge(operation("administrator_read", 200, 401))
  )
  .middleware(JsonBody)
  .middleware(ManagementAccess)
  .middleware(Enveloped) {}
