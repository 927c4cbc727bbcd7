/** Tags (management-api.md, "tag"). */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema } from "effect/http-api"
import { Enveloped, JsonBody, ManagementAccess, operation } from "#api/access.ts"
import { nullable, RequiredText, ShortText } from "#api/fields.ts"
import { isStorableText } from "#domain/storable.ts"

const Tag = Schema.Struct({
  id: Schema.String,
  tag_id: Schema.String,
  name: Schema.String,
  tag_name: Schema.String,
  color: Schema.String,
  description: Schema.String,
  created_at: Schema.String
}).annotate({ identifier: "Tag" })

const description = nullable(
  Schema.String.check(
    Schema.isMaxLength(4096),
    Schema.makeFilter(isStorableText, { expected: "text without NUL characters" })
  )
)

export class TagGroup extends HttpApiGroup.make("tag")
  .add(
    HttpApiEndpoint.post("new", "/tag/new", {
      payload: Schema.Struct({
        tag_name: RequiredText,
        description,
        name: nullable(ShortText),
        color: nullable(ShortText)
      }).annotate({ identifier: "TagCreation" }),
      success: Schema.Struct({ tag_id: Schema.String }).pipe(HttpApiSchema.status(201))
    }).annotateMerge(operation("administrator", 201, 400, 401)),
    HttpApiEndpoint.post("update", "/tag/update", {
      /** By row id, which alone can rename; else by name. */
      payload: Schema.Struct({
        tag_id: ShortText,
        tag_name: nullable(ShortText),
        description,
        id: nullable(ShortText),
        name: nullable(ShortText),
        color: nullable(ShortText)
      }).annotate({ identifier: "TagUpdate" }),
      success: Schema.Struct({ updated: Schema.Boolean })
    }).annotateMerge(operation("administrator", 200, 401, 404)),
    HttpApiEndpoint.post("delete", "/tag/delete", {
      payload: Schema.Struct({
        tag_id: ShortText,
        id: nullable(ShortText),
        name: nullable(ShortText)
      }).annotate({ identifier: "TagDeletion" }),
      success: Schema.Struct({ deleted: Schema.Boolean })
    }).annotateMerge(operation("administrator", 200, 401, 404)),
    HttpApiEndpoint.get("list", "/tag/list", {
      success: Schema.Struct({ data: Schema.Array(Tag) })
    }).annotateMerge(operation("administrator_read", 200, 401))
  )
  .middleware(JsonBody)
  .middleware(ManagementAccess)
  .middleware(Enveloped) {}
