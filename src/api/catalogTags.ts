/** Tags on what the catalog holds (management-api.md, "v1"). */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema } from "effect/http-api"
import { Enveloped, JsonBody, ManagementAccess, operation } from "#api/access.ts"
import { AnyObject, FreeObject, nullable, RequiredText, ShortText } from "#api/fields.ts"

const CatalogTag = Schema.Struct({
  ns: Schema.String,
  key: Schema.String,
  value: Schema.String,
  target: AnyObject
}).annotate({ identifier: "CatalogTag" })

export class CatalogTagsGroup extends HttpApiGroup.make("catalog_tags")
  .add(
    HttpApiEndpoint.get("list", "/management/v1/catalog/tags", {
      success: Schema.Struct({ data: Schema.Array(CatalogTag) })
    }).annotateMerge(operation("administrator_read", 200, 401)),
    HttpApiEndpoint.post("set", "/management/v1/catalog/tags", {
      payload: Schema.Struct({
        ns: nullable(ShortText),
        key: RequiredText,
        value: nullable(ShortText),
        target: FreeObject
      }).annotate({ identifier: "CatalogTagSetting" }),
      success: HttpApiSchema.Empty(200)
    }).annotateMerge(operation("administrator", 200, 400, 401)),
    HttpApiEndpoint.delete("remove", "/management/v1/catalog/tags", {
      payload: Schema.Struct({
        ns: nullable(ShortText),
        key: nullable(ShortText),
        target: FreeObject
      }).annotate({ identifier: "CatalogTagRemoval" }),
      success: HttpApiSchema.Empty(200)
    }).annotateMerge(operation("administrator", 200, 400, 401))
  )
  .middleware(JsonBody)
  .middleware(ManagementAccess)
  .middleware(Enveloped) {}
