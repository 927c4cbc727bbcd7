/** The tenants of the instance (management-api.md, "v1", rule 5). */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup } from "effect/http-api"
import { Enveloped, ManagementAccess, operation } from "#api/access.ts"

export class TenantsGroup extends HttpApiGroup.make("tenants")
  .add(
    HttpApiEndpoint.get("list", "/management/v1/tenants", {
      success: Schema.Struct({ tenants: Schema.Array(Schema.String), dormant: Schema.Boolean })
    }).annotateMerge(operation("instance_admin", 200, 401, 403))
  )
  .middleware(ManagementAccess)
  .middleware(Enveloped) {}
