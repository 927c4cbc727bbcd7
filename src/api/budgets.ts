/** Budget tiers (management-api.md, "budget"). */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema } from "effect/http-api"
import { Enveloped, JsonBody, ManagementAccess, operation } from "#api/access.ts"
import { Dollars, nullable, RateLimit, RequiredText, ShortText, text } from "#api/fields.ts"
import { listOf, paging, shownLimits } from "#api/people-fields.ts"

/** `30s`, `5m`, `12h`, `7d`, `1mo`. */
const BudgetDuration = Schema.String.check(Schema.isPattern(/^[1-9]\d{0,5}(s|m|h|d|mo)$/))

const Budget = Schema.Struct({
  id: Schema.String,
  budget_id: Schema.String,
  name: Schema.String,
  max_budget: shownLimits.max_budget,
  soft_budget: shownLimits.soft_budget,
  duration: text,
  budget_duration: text,
  rpm_limit: shownLimits.rpm_limit,
  tpm_limit: shownLimits.tpm_limit,
  reset_at: text,
  current_spend: Schema.Finite,
  created_at: Schema.String
}).annotate({ identifier: "Budget" })

/** In an update, an absent field leaves the stored value untouched and null clears it. */
const fields = {
  max_budget: nullable(Dollars),
  soft_budget: nullable(Dollars),
  budget_duration: nullable(BudgetDuration),
  rpm_limit: nullable(RateLimit),
  tpm_limit: nullable(RateLimit),
  name: nullable(ShortText)
}

export class BudgetGroup extends HttpApiGroup.make("budget")
  .add(
    HttpApiEndpoint.post("new", "/budget/new", {
      payload: Schema.Struct({ budget_id: RequiredText, ...fields }).annotate({ identifier: "BudgetCreation" }),
      success: Schema.Struct({ budget_id: Schema.String }).pipe(HttpApiSchema.status(201))
    }).annotateMerge(operation("administrator", 201, 400, 401)),
    HttpApiEndpoint.post("update", "/budget/update", {
      payload: Schema.Struct({ budget_id: RequiredText, ...fields }).annotate({ identifier: "BudgetUpdate" }),
      success: Schema.Struct({ updated: Schema.Boolean })
    }).annotateMerge(operation("administrator", 200, 401, 404)),
    HttpApiEndpoint.post("delete", "/budget/delete", {
      payload: Schema.Struct({ budget_id: RequiredText }).annotate({ identifier: "BudgetDeletion" }),
      success: Schema.Struct({ deleted: Schema.Boolean })
    }).annotateMerge(operation("administrator", 200, 401, 404)),
    HttpApiEndpoint.get("info", "/budget/info", {
      query: { budget_id: ShortText },
      success: Budget
    }).annotateMerge(operation("administrator_read", 200, 401, 404)),
    HttpApiEndpoint.get("list", "/budget/list", {
      query: paging,
      success: listOf(Budget)
    }).annotateMerge(operation("administrator_read", 200, 401))
  )
  .middleware(JsonBody)
  .middleware(ManagementAccess)
  .middleware(Enveloped) {}
