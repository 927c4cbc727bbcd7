/** Users (management-api.md, "user"). */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema } from "effect/http-api"
import { Enveloped, JsonBody, ManagementAccess, operation } from "#api/access.ts"
import { nullable, RequiredText, ShortText, text } from "#api/fields.ts"
import { limits, listOf, paging, shownLimits } from "#api/people-fields.ts"

const Email = ShortText.check(Schema.isPattern(/^[^\s@]+@[^\s@]+$/))

const User = Schema.Struct({
  id: Schema.String,
  user_id: Schema.String,
  user_email: text,
  user_role: Schema.String,
  name: Schema.String,
  organization_id: text,
  team_id: text,
  ...shownLimits,
  created_at: Schema.String,
  updated_at: Schema.String
}).annotate({ identifier: "User" })

const UserCreation = Schema.Struct({
  user_email: nullable(Email),
  user_role: nullable(RequiredText),
  name: RequiredText,
  ...limits
}).annotate({ identifier: "UserCreation" })

/** An absent field leaves the stored value untouched; null clears it. */
const UserUpdate = Schema.Struct({
  user_id: RequiredText,
  user_email: nullable(Email),
  user_role: nullable(RequiredText),
  name: Schema.optionalKey(RequiredText),
  ...limits
}).annotate({ identifier: "UserUpdate" })

export class UserGroup extends HttpApiGroup.make("user")
  .add(
    HttpApiEndpoint.post("new", "/user/new", {
      payload: UserCreation,
      success: Schema.Struct({ id: Schema.String, user_email: text }).pipe(HttpApiSchema.status(201))
    }).annotateMerge(operation("administrator", 201, 400, 401)),
    HttpApiEndpoint.post("update", "/user/update", {
      payload: UserUpdate,
      success: Schema.Struct({ updated: Schema.Boolean })
    }).annotateMerge(operation("administrator", 200, 400, 401, 404)),
    HttpApiEndpoint.post("delete", "/user/delete", {
      payload: Schema.Struct({ user_id: RequiredText }).annotate({ identifier: "UserDeletion" }),
      success: Schema.Struct({ deleted: Schema.Boolean })
    }).annotateMerge(operation("administrator", 200, 401, 404)),
    HttpApiEndpoint.get("info", "/user/info", {
      query: { user_id: Schema.optionalKey(ShortText), user_email: Schema.optionalKey(ShortText) },
      success: User
    }).annotateMerge(operation("administrator_read", 200, 401, 404)),
    HttpApiEndpoint.get("list", "/user/list", {
      query: { ...paging, user_role: Schema.optionalKey(ShortText) },
      success: listOf(User)
    }).annotateMerge(operation("administrator_read", 200, 401))
  )
  .middleware(JsonBody)
  .middleware(ManagementAccess)
  .middleware(Enveloped) {}
