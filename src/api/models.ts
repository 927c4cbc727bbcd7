/** The model registry (management-api.md, "model"). Reads are open to every administrator, writes to the instance's. */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema } from "effect/http-api"
import { Enveloped, JsonBody, ManagementAccess, operation } from "#api/access.ts"
import { AnyObject, FreeObject, nullable, RequiredText, ShortText } from "#api/fields.ts"
import { isJsonObject } from "#domain/json.ts"
import { picosFromDollars } from "#domain/money.ts"
import { priceFieldNames } from "#domain/usage.ts"

const isPrice = (value: unknown): boolean =>
  value === undefined ||
  value === null ||
  ((typeof value === "number" || typeof value === "string") && (picosFromDollars(value) ?? -1n) >= 0n)

/** A price that cannot be read would make a model free. */
const ModelInfo = FreeObject.check(
  Schema.makeFilter((info: { readonly [name: string]: unknown }) => {
    const bad = priceFieldNames.find((name) => !isPrice(info[name]))
    return bad === undefined ? undefined : { path: [bad], issue: "must be a price in dollars, 0 or more" }
  })
)

const isHttpUrl = (text: string): boolean => URL.canParse(text) && /^https?:$/.test(new URL(text).protocol)

const texts = ["model", "api_base", "credential_name"] as const

const GatewayParams = FreeObject.check(
  Schema.makeFilter((params: { readonly [name: string]: unknown }) => {
    const bad = texts.find(
      (name) => params[name] !== undefined && params[name] !== null && typeof params[name] !== "string"
    )
    if (bad !== undefined) return { path: [bad], issue: "must be a string" }
    const base = params["api_base"]
    return typeof base === "string" && base !== "" && !isHttpUrl(base)
      ? { path: ["api_base"], issue: "must be an http or https address" }
      : undefined
  })
)

/** `upstream_params` is another name of `gateway_params`. */
const parameters = { gateway_params: nullable(GatewayParams), upstream_params: nullable(GatewayParams) }

const ModelCreation = Schema.Struct({
  model_name: RequiredText,
  ...parameters,
  model_info: nullable(ModelInfo)
}).annotate({ identifier: "ModelCreation" })

/** Members of the given objects are laid over the stored ones; null removes one. */
const ModelUpdate = Schema.Struct({
  model_id: RequiredText,
  model_name: nullable(RequiredText),
  ...parameters,
  model_info: nullable(ModelInfo)
}).annotate({ identifier: "ModelUpdate" })

const registered = {
  id: Schema.String,
  model_id: Schema.String,
  name: Schema.String,
  model_name: Schema.String,
  gateway_params: AnyObject,
  model_info: AnyObject,
  created_at: Schema.String
}

const RegisteredModel = Schema.Struct(registered).annotate({ identifier: "RegisteredModel" })

const ListedModel = Schema.Struct({
  ...registered,
  provider: Schema.String,
  health: Schema.String,
  response_time_ms: Schema.NullOr(Schema.Finite),
  last_checked_at: Schema.NullOr(Schema.String),
  lifecycle: Schema.String,
  is_self_hosted: Schema.Boolean,
  priced: Schema.Boolean
}).annotate({ identifier: "ListedModel" })

export class ModelGroup extends HttpApiGroup.make("model")
  .add(
    HttpApiEndpoint.post("delete", "/model/delete", {
      payload: Schema.Struct({ model_id: RequiredText }),
      success: Schema.Struct({ deleted: Schema.Boolean })
    }).annotateMerge(operation("instance_admin", 200, 401, 404)),
    HttpApiEndpoint.get("info", "/model/info", {
      query: { model_id: Schema.optionalKey(ShortText), model_name: Schema.optionalKey(ShortText) },
      success: RegisteredModel
    }).annotateMerge(operation("administrator_read", 200, 401, 404)),
    HttpApiEndpoint.get("list", "/model/list", {
      success: Schema.Struct({ data: Schema.Array(ListedModel) })
    }).annotateMerge(operation("administrator_read", 200, 401)),
    HttpApiEndpoint.post("new", "/model/new", {
      payload: ModelCreation,
      success: Schema.Struct({ model_id: Schema.String }).pipe(HttpApiSchema.status(201))
    }).annotateMerge(operation("instance_admin", 201, 400, 401)),
    HttpApiEndpoint.post("update", "/model/update", {
      payload: ModelUpdate,
      success: Schema.Struct({ updated: Schema.Boolean })
    }).annotateMerge(operation("instance_admin", 200, 401, 404))
  )
  .middleware(JsonBody)
  .middleware(ManagementAccess)
  .middleware(Enveloped) {}

/** Whether an object came at all: the two names of the parameters are one. */
export const parametersOf = (payload: {
  readonly gateway_params?: { readonly [name: string]: Schema.Json } | null
  readonly upstream_params?: { readonly [name: string]: Schema.Json } | null
}) => {
  const given = payload.gateway_params ?? payload.upstream_params
  return isJsonObject(given) ? given : undefined
}
