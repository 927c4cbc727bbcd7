/** API keys (management-api.md, "key"). */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema } from "effect/http-api"
import { Enveloped, JsonBody, ManagementAccess, operation } from "#api/access.ts"
import { AnyObject, FreeObject, Instant, nullable, Page, PageSize, RequiredText, ShortText, text } from "#api/fields.ts"
import { keyLimits, keyNames, shownKeyLimits, shownKeyNames } from "#api/key-fields.ts"

/** Names a key by its token or its row id. */
const KeyReference = Schema.Struct({ key: nullable(ShortText), key_id: nullable(ShortText) }).annotate({
  identifier: "KeyReference"
})

const references = Schema.Array(ShortText).check(Schema.isMaxLength(1000))

const KeyDeletion = Schema.Struct({
  key: nullable(ShortText),
  key_id: nullable(ShortText),
  keys: nullable(references),
  key_aliases: nullable(references)
}).annotate({ identifier: "KeyDeletion" })

const KeyCreation = Schema.Struct({
  ...keyNames,
  user_id: nullable(ShortText),
  team_id: nullable(ShortText),
  organization_id: nullable(ShortText),
  ...keyLimits,
  budget_id: nullable(ShortText),
  expires: nullable(Instant),
  metadata: nullable(FreeObject),
  tenant: nullable(ShortText)
}).annotate({ identifier: "KeyCreation" })

/** An absent field leaves the stored value untouched; null clears it. */
const KeyUpdate = Schema.Struct({
  key: RequiredText,
  ...keyNames,
  team_id: nullable(ShortText),
  ...keyLimits,
  budget_id: nullable(ShortText),
  expires: nullable(Instant),
  metadata: nullable(FreeObject)
}).annotate({ identifier: "KeyUpdate" })

/** `token` shows the last four characters alone. */
const ApiKey = Schema.Struct({
  token: Schema.String,
  id: Schema.String,
  key_id: Schema.String,
  ...shownKeyNames,
  user_id: text,
  team_id: text,
  organization_id: text,
  tenant: Schema.String,
  ...shownKeyLimits,
  budget_id: text,
  expires: text,
  metadata: AnyObject,
  blocked: Schema.Boolean,
  created_by: Schema.String,
  created_at: Schema.String,
  updated_at: Schema.String
}).annotate({ identifier: "ApiKey" })

const IssuedKey = Schema.Struct({ key: Schema.String, key_id: Schema.String, key_name: text }).annotate({
  identifier: "IssuedKey"
})

export class KeyGroup extends HttpApiGroup.make("key")
  .add(
    HttpApiEndpoint.post("block", "/key/block", {
      payload: KeyReference,
      success: Schema.Struct({ blocked: Schema.Boolean })
    }).annotateMerge(operation("administrator", 200, 401, 404)),
    HttpApiEndpoint.post("unblock", "/key/unblock", {
      payload: KeyReference,
      success: Schema.Struct({ unblocked: Schema.Boolean })
    }).annotateMerge(operation("administrator", 200, 401, 404)),
    HttpApiEndpoint.post("delete", "/key/delete", {
      payload: KeyDeletion,
      success: Schema.Struct({ deleted_keys: Schema.Array(Schema.String) })
    }).annotateMerge(operation("administrator", 200, 400, 401)),
    HttpApiEndpoint.post("generate", "/key/generate", {
      payload: KeyCreation,
      success: IssuedKey.pipe(HttpApiSchema.status(201))
    }).annotateMerge(operation("administrator", 201, 400, 401)),
    HttpApiEndpoint.get("info", "/key/info", {
      query: { key: Schema.optionalKey(ShortText), key_id: Schema.optionalKey(ShortText) },
      success: ApiKey
    }).annotateMerge(operation("administrator_read", 200, 401, 404)),
    HttpApiEndpoint.get("list", "/key/list", {
      query: {
        user_id: Schema.optionalKey(ShortText),
        team_id: Schema.optionalKey(ShortText),
        organization_id: Schema.optionalKey(ShortText),
        search: Schema.optionalKey(ShortText),
        page: Schema.optionalKey(Page),
        page_size: Schema.optionalKey(PageSize)
      },
      success: Schema.Struct({ data: Schema.Array(ApiKey), total: Schema.Int })
    }).annotateMerge(operation("administrator_read", 200, 401)),
    HttpApiEndpoint.post("update", "/key/update", {
      payload: KeyUpdate,
      success: Schema.Struct({ updated: Schema.Boolean })
    }).annotateMerge(operation("administrator", 200, 400, 401, 404)),
    HttpApiEndpoint.post("regenerate", "/key/:key/regenerate", {
      params: { key: Schema.String },
      success: IssuedKey
    }).annotateMerge(operation("administrator", 200, 401, 404))
  )
  .middleware(JsonBody)
  .middleware(ManagementAccess)
  .middleware(Enveloped) {}
