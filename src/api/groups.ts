/** Groups, members and permissions (management-api.md, "v1", rule 3). */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema } from "effect/http-api"
import { Enveloped, JsonBody, ManagementAccess, operation } from "#api/access.ts"
import { nullable, RequiredText, ShortText } from "#api/fields.ts"

const Permission = Schema.Struct({
  privilege: Schema.String,
  object_type: Schema.String,
  object_id: Schema.String,
  tenant: Schema.String
})

const PermissionRequest = Schema.Struct({
  privilege: RequiredText,
  object_type: nullable(ShortText),
  object_id: nullable(ShortText),
  tenant: nullable(ShortText)
}).annotate({ identifier: "GroupPermission" })

const MemberRequest = Schema.Struct({ principal_id: RequiredText }).annotate({ identifier: "GroupMember" })

const group = {
  id: Schema.String,
  name: Schema.String,
  catalog: Schema.String,
  catalog_role: Schema.Struct({ id: Schema.String, name: Schema.String }),
  tenant: Schema.String,
  created_by: Schema.String,
  created_at: Schema.String
}

const Group = Schema.Struct(group).annotate({ identifier: "Group" })
const GroupWithPermissions = Schema.Struct({ ...group, permissions: Schema.Array(Permission) }).annotate({
  identifier: "GroupWithPermissions"
})

const params = { id: Schema.String }
const name = RequiredText.check(
  Schema.makeFilter((text: string) => text.trim() === text, { expected: "a name without spaces around it" })
)

export class GroupsGroup extends HttpApiGroup.make("groups")
  .add(
    HttpApiEndpoint.get("list", "/management/v1/groups/", {
      success: Schema.Struct({ data: Schema.Array(Group) })
    }).annotateMerge(operation("administrator_read", 200, 401, 403)),
    HttpApiEndpoint.post("create", "/management/v1/groups/", {
      payload: Schema.Struct({ name, catalog: nullable(ShortText) }).annotate({ identifier: "GroupCreation" }),
      success: Schema.Struct({ group: Group }).pipe(HttpApiSchema.status(201))
    }).annotateMerge(operation("administrator", 201, 400, 401, 403, 409)),
    HttpApiEndpoint.delete("remove", "/management/v1/groups/:id", {
      params,
      success: Schema.Struct({ deleted: Schema.Boolean })
    }).annotateMerge(operation("administrator", 200, 401, 403, 404)),
    HttpApiEndpoint.get("find", "/management/v1/groups/:id", {
      params,
      success: Schema.Struct({ group: GroupWithPermissions })
    }).annotateMerge(operation("administrator_read", 200, 401, 403, 404)),
    HttpApiEndpoint.get("members", "/management/v1/groups/:id/members", {
      params,
      success: Schema.Struct({ data: Schema.Array(Schema.String) })
    }).annotateMerge(operation("administrator_read", 200, 401, 403)),
    HttpApiEndpoint.post("addMember", "/management/v1/groups/:id/members", {
      params,
      payload: MemberRequest,
      success: Schema.Struct({ added: Schema.Boolean })
    }).annotateMerge(operation("administrator", 200, 400, 401, 403)),
    HttpApiEndpoint.post("removeMember", "/management/v1/groups/:id/members/remove", {
      params,
      payload: MemberRequest,
      success: Schema.Struct({ removed: Schema.Boolean })
    }).annotateMerge(operation("administrator", 200, 400, 401, 403)),
    HttpApiEndpoint.post("grant", "/management/v1/groups/:id/permissions", {
      params,
      payload: PermissionRequest,
      success: Schema.Struct({ granted: Schema.Boolean })
    }).annotateMerge(operation("administrator", 200, 400, 401, 403, 404)),
    HttpApiEndpoint.post("revoke", "/management/v1/groups/:id/permissions/remove", {
      params,
      payload: PermissionRequest,
      success: Schema.Struct({ revoked: Schema.Boolean })
    }).annotateMerge(operation("administrator", 200, 400, 401, 403, 404))
  )
  .middleware(JsonBody)
  .middleware(ManagementAccess)
  .middleware(Enveloped) {}
