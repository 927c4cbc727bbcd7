/** Administration of guardrails (management-api.md, "guardrail"). */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema } from "effect/http-api"
import { Enveloped, JsonBody, ManagementAccess, operation } from "#api/access.ts"
import { AnyObject, FreeObject, nullable, Page, PageSize, RequiredText, ShortText, text } from "#api/fields.ts"

const Mode = Schema.Literals(["log", "block"])

const Guardrail = Schema.Struct({
  id: Schema.String,
  guardrail_id: Schema.String,
  guardrail_name: Schema.String,
  name: Schema.String,
  guardrail_type: Schema.String,
  mode: Schema.String,
  config: AnyObject,
  enabled: Schema.Boolean,
  gateway_params: AnyObject,
  guardrail_info: AnyObject,
  created_at: Schema.String
}).annotate({ identifier: "Guardrail" })

const GuardrailLogEntry = Schema.Struct({
  id: Schema.String,
  request_id: Schema.String,
  guardrail_id: Schema.String,
  guardrail_name: Schema.String,
  status: Schema.String,
  duration_ms: Schema.Finite,
  confidence: Schema.NullOr(Schema.Finite),
  stage: Schema.String,
  original_content: text,
  modified_content: text,
  created_at: Schema.String
}).annotate({ identifier: "GuardrailLogEntry" })

const Counts = Schema.Record(Schema.String, Schema.Int)

const GuardrailStatistics = Schema.Struct({
  total: Schema.Int,
  by_status: Counts,
  by_stage: Counts,
  average_duration_ms: Schema.Finite,
  guardrails: Schema.Array(
    Schema.Struct({
      guardrail_id: Schema.String,
      guardrail_name: Schema.String,
      total: Schema.Int,
      by_status: Counts,
      average_duration_ms: Schema.Finite
    })
  )
}).annotate({ identifier: "GuardrailStatistics" })

const Finding = Schema.Struct({
  guardrail_id: Schema.String,
  guardrail_name: Schema.String,
  status: Schema.String,
  stage: Schema.String,
  duration_ms: Schema.Finite,
  confidence: Schema.NullOr(Schema.Finite),
  original_content: text,
  modified_content: text
})

/** `passed`: no guardrail found anything; `action`: what a call with this text would meet. */
const GuardrailCheck = Schema.Struct({
  passed: Schema.Boolean,
  details: Schema.Struct({
    action: Schema.Literals(["allow", "log", "mask", "block"]),
    output: Schema.String,
    results: Schema.Array(Finding)
  })
}).annotate({ identifier: "GuardrailCheck" })

export class GuardrailGroup extends HttpApiGroup.make("guardrail")
  .add(
    HttpApiEndpoint.post("check", "/guardrail/check", {
      /** Without a guardrail, all that bind the caller. */
      payload: Schema.Struct({
        guardrail_id: nullable(ShortText),
        input: Schema.String.check(Schema.isMaxLength(4_000_000))
      }).annotate({ identifier: "GuardrailDryRun" }),
      success: GuardrailCheck
    }).annotateMerge(operation("administrator", 200, 400, 401)),
    HttpApiEndpoint.post("delete", "/guardrail/delete", {
      payload: Schema.Struct({ guardrail_id: RequiredText }).annotate({ identifier: "GuardrailDeletion" }),
      success: Schema.Struct({ deleted: Schema.Boolean })
    }).annotateMerge(operation("administrator", 200, 401, 404)),
    HttpApiEndpoint.get("list", "/guardrail/list", {
      success: Schema.Struct({ data: Schema.Array(Guardrail) })
    }).annotateMerge(operation("administrator_read", 200, 401)),
    HttpApiEndpoint.get("logs", "/guardrail/logs", {
      query: {
        guardrail_id: Schema.optionalKey(ShortText),
        page: Schema.optionalKey(Page),
        page_size: Schema.optionalKey(PageSize)
      },
      success: Schema.Struct({ data: Schema.Array(GuardrailLogEntry) })
    }).annotateMerge(operation("administrator_read", 200, 401)),
    HttpApiEndpoint.get("stats", "/guardrail/logs/stats", { success: GuardrailStatistics }).annotateMerge(
      operation("administrator_read", 200, 401)
    ),
    HttpApiEndpoint.post("new", "/guardrail/new", {
      payload: Schema.Struct({
        guardrail_name: nullable(ShortText),
        guardrail_type: nullable(ShortText),
        mode: Mode,
        config: nullable(FreeObject),
        gateway_params: nullable(FreeObject)
      }).annotate({ identifier: "GuardrailCreation" }),
      success: Schema.Struct({ guardrail_id: Schema.String }).pipe(HttpApiSchema.status(201))
    }).annotateMerge(operation("administrator", 201, 400, 401)),
    HttpApiEndpoint.post("update", "/guardrail/update", {
      payload: Schema.Struct({
        guardrail_id: RequiredText,
        mode: nullable(Mode),
        config: nullable(FreeObject),
        guardrail_name: nullable(ShortText),
        guardrail_type: nullable(ShortText),
        gateway_params: nullable(FreeObject),
        enabled: nullable(Schema.Boolean)
      }).annotate({ identifier: "GuardrailUpdate" }),
      success: Schema.Struct({ updated: Schema.Boolean })
    }).annotateMerge(operation("administrator", 200, 401, 404))
  )
  .middleware(JsonBody)
  .middleware(ManagementAccess)
  .middleware(Enveloped) {}
