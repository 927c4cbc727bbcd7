/** Customers: the end users whom calls name (management-api.md, "customer"). */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema } from "effect/http-api"
import { Enveloped, JsonBody, ManagementAccess, operation } from "#api/access.ts"
import { nullable, RequiredText, ShortText, text } from "#api/fields.ts"
import { limits, listOf, paging, shownLimits } from "#api/people-fields.ts"

/** `default_model` and `allowed_model_region` are always null: nothing in the contract sets them. */
const Customer = Schema.Struct({
  id: Schema.String,
  customer_id: Schema.String,
  end_user_id: Schema.String,
  external_user_id: Schema.String,
  end_user_name: text,
  alias: text,
  organization_id: text,
  spend: Schema.Finite,
  blocked: Schema.Boolean,
  default_model: text,
  allowed_model_region: text,
  ...shownLimits,
  created_at: Schema.String
}).annotate({ identifier: "Customer" })

const CustomerCreation = Schema.Struct({
  user_id: RequiredText,
  alias: nullable(ShortText),
  end_user_id: nullable(ShortText),
  end_user_name: nullable(ShortText),
  ...limits
}).annotate({ identifier: "CustomerCreation" })

/** `id` names a row, `end_user_id` an end user; `customer_id` may be either and counts where neither is given. */
const reference = { customer_id: RequiredText, id: nullable(ShortText), end_user_id: nullable(ShortText) }

/** An absent field leaves the stored value untouched; null clears it. */
const CustomerUpdate = Schema.Struct({
  ...reference,
  end_user_name: nullable(ShortText),
  blocked: Schema.optionalKey(Schema.Boolean),
  ...limits
}).annotate({ identifier: "CustomerUpdate" })

export class CustomerGroup extends HttpApiGroup.make("customer")
  .add(
    HttpApiEndpoint.post("new", "/customer/new", {
      payload: CustomerCreation,
      success: Schema.Struct({ customer_id: Schema.String }).pipe(HttpApiSchema.status(201))
    }).annotateMerge(operation("administrator", 201, 400, 401)),
    HttpApiEndpoint.post("update", "/customer/update", {
      payload: CustomerUpdate,
      success: Schema.Struct({ updated: Schema.Boolean })
    }).annotateMerge(operation("administrator", 200, 401, 404)),
    HttpApiEndpoint.post("delete", "/customer/delete", {
      payload: Schema.Struct(reference).annotate({ identifier: "CustomerDeletion" }),
      success: Schema.Struct({ deleted: Schema.Boolean })
    }).annotateMerge(operation("administrator", 200, 401, 404)),
    HttpApiEndpoint.get("list", "/customer/list", {
      query: paging,
      success: listOf(Customer)
    }).annotateMerge(operation("administrator_read", 200, 401))
  )
  .middleware(JsonBody)
  .middleware(ManagementAccess)
  .middleware(Enveloped) {}
