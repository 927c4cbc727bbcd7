/** Datasets and eval suites: assets of the catalog (management-api.md, "dataset", "eval_suite"). */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema } from "effect/http-api"
import { Enveloped, JsonBody, ManagementAccess, operation } from "#api/access.ts"
import { AnyObject, nullable, RequiredText } from "#api/fields.ts"
import { assetBounds } from "#domain/assets.ts"

const asset = {
  asset_id: Schema.String,
  name: Schema.String,
  version: Schema.Int,
  /** SHA-256 of the canonical JSON of the whole content, lower-case hexadecimal. */
  content_hash: Schema.String,
  /** Left out where the answer would grow too large. */
  content: Schema.optionalKey(AnyObject),
  created_by: Schema.String,
  created_at: Schema.String
}

const Dataset = Schema.Struct({ ...asset, item_count: Schema.Int, updated_at: Schema.String }).annotate({
  identifier: "Dataset"
})
const EvalSuiteVersion = Schema.Struct(asset).annotate({ identifier: "EvalSuiteVersion" })
const Written = Schema.Struct({ asset_id: Schema.String, version: Schema.Int }).annotate({ identifier: "AssetVersion" })

/** The catalog bounds and checks contents, because what is allowed depends on the kind of asset. */
const NewAsset = Schema.Struct({ name: nullable(RequiredText), content: AnyObject }).annotate({
  identifier: "AssetCreation"
})

const params = { id: Schema.String }
const creation = { payload: NewAsset, success: Written.pipe(HttpApiSchema.status(201)) } as const

export class DatasetGroup extends HttpApiGroup.make("dataset")
  .add(
    HttpApiEndpoint.get("list", "/management/dataset/list", {
      success: Schema.Struct({ data: Schema.Array(Dataset) })
    }).annotateMerge(operation("administrator_read", 200, 401, 403)),
    HttpApiEndpoint.post("create", "/management/dataset/new", creation).annotateMerge(
      operation("administrator", 201, 400, 401, 403)
    ),
    HttpApiEndpoint.post("append", "/management/dataset/:id/items", {
      params,
      payload: Schema.Struct({
        items: Schema.Array(AnyObject).check(Schema.isMinLength(1), Schema.isMaxLength(assetBounds.itemsPerRequest))
      }).annotate({ identifier: "DatasetItems" }),
      success: Schema.Struct({ appended: Schema.Int })
    }).annotateMerge(operation("administrator", 200, 400, 401, 403, 404)),
    HttpApiEndpoint.post("sample", "/management/dataset/:id/sample_from_production", {
      params,
      payload: Schema.Struct({
        sample_size: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }))
      }).annotate({ identifier: "DatasetSample" }),
      success: Schema.Struct({ sampled: Schema.Int })
    }).annotateMerge(operation("administrator", 200, 400, 401, 403, 404))
  )
  .middleware(JsonBody)
  .middleware(ManagementAccess)
  .middleware(Enveloped) {}

export class EvalSuiteGroup extends HttpApiGroup.make("eval_suite")
  .add(
    HttpApiEndpoint.post("create", "/management/eval_suite/new", creation).annotateMerge(
      operation("administrator", 201, 400, 401, 403)
    ),
    HttpApiEndpoint.get("versions", "/management/eval_suite/:id/versions", {
      params,
      success: Schema.Struct({ data: Schema.Array(EvalSuiteVersion) })
    }).annotateMerge(operation("administrator_read", 200, 401, 403, 404))
  )
  .middleware(JsonBody)
  .middleware(ManagementAccess)
  .middleware(Enveloped) {}
