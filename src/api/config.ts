/** Runtime configuration (management-api.md, "config"). */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup } from "effect/http-api"
import { Enveloped, JsonBody, ManagementAccess, operation } from "#api/access.ts"
import { AnyObject, FreeObject } from "#api/fields.ts"

export class ConfigGroup extends HttpApiGroup.make("config")
  .add(
    HttpApiEndpoint.get("list", "/config/list", { success: AnyObject }).annotateMerge(
      operation("administrator_read", 200, 401)
    ),
    /** Entries that are not named stay; null removes one. */
    HttpApiEndpoint.post("update", "/config/update", {
      payload: FreeObject,
      success: Schema.Struct({ updated: Schema.Boolean })
    }).annotateMerge(operation("administrator", 200, 401))
  )
  .middleware(JsonBody)
  .middleware(ManagementAccess)
  .middleware(Enveloped) {}
