/** Pipeline definitions and runs (management-api.md, "pipeline"). */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema } from "effect/http-api"
import { Enveloped, JsonBody, ManagementAccess, operation } from "#api/access.ts"
import { AnyObject, FreeObject, nullable, RequiredText, ShortText } from "#api/fields.ts"

const EventStream = Schema.String.pipe(HttpApiSchema.asText({ contentType: "text/event-stream" }))

/** The operation documents no 400, so a number that is none, or out of range, falls back to what is nearest. */
const LenientNumber = Schema.optionalKey(Schema.String)

const PipelineDefinition = Schema.Struct({
  asset_id: Schema.String,
  name: Schema.String,
  current_version: Schema.Int,
  content_hash: Schema.String,
  workflow_type: Schema.String,
  /** Left out of lists that would grow too large. */
  content: Schema.optionalKey(AnyObject),
  created_at: Schema.String,
  updated_at: Schema.String
}).annotate({ identifier: "PipelineDefinition" })

const PipelineRun = AnyObject.annotate({ identifier: "PipelineRun" })
const Rows = Schema.Struct({ data: Schema.Array(AnyObject) })

const run = { id: Schema.String }

export class PipelineGroup extends HttpApiGroup.make("pipeline")
  .add(
    HttpApiEndpoint.get("definitions", "/management/pipelines/definitions", {
      success: Schema.Struct({ data: Schema.Array(PipelineDefinition) })
    }).annotateMerge(operation("administrator_read", 200, 401)),
    HttpApiEndpoint.post("register", "/management/pipelines/definitions", {
      payload: Schema.Struct({
        name: nullable(RequiredText),
        dsl_source: Schema.String
      }).annotate({ identifier: "PipelineDefinitionCreation" }),
      success: Schema.Struct({
        asset_id: Schema.String,
        version: Schema.Int,
        workflow_type: Schema.String
      }).pipe(HttpApiSchema.status(201))
    }).annotateMerge(operation("administrator", 201, 400, 401)),
    HttpApiEndpoint.get("definition", "/management/pipelines/definitions/:id", {
      params: run,
      success: PipelineDefinition
    }).annotateMerge(operation("administrator_read", 200, 404)),
    HttpApiEndpoint.get("awaitingReview", "/management/pipelines/hitl/pending", {
      query: { tenant: Schema.optionalKey(ShortText) },
      success: Rows
    }).annotateMerge(operation("administrator_read", 200, 401, 403)),
    HttpApiEndpoint.get("runs", "/management/pipelines/runs", {
      query: {
        tenant: Schema.optionalKey(ShortText),
        status: Schema.optionalKey(ShortText),
        definition_id: Schema.optionalKey(ShortText),
        limit: LenientNumber,
        offset: LenientNumber
      },
      success: Rows
    }).annotateMerge(operation("administrator_read", 200, 401, 403)),
    HttpApiEndpoint.post("start", "/management/pipelines/runs", {
      payload: Schema.Struct({
        definition_id: RequiredText,
        definition_version: nullable(ShortText),
        initial_inputs: nullable(FreeObject)
      }).annotate({ identifier: "PipelineRunCreation" }),
      success: Schema.Struct({
        run_id: Schema.String,
        engine_workflow_id: Schema.String,
        engine_namespace: Schema.String,
        status: Schema.String
      }).pipe(HttpApiSchema.status(202))
    }).annotateMerge(operation("administrator", 202, 400, 401, 404, 503)),
    HttpApiEndpoint.get("run", "/management/pipelines/runs/:id", {
      params: run,
      success: PipelineRun
    }).annotateMerge(operation("administrator_read", 200, 404)),
    HttpApiEndpoint.post("cancel", "/management/pipelines/runs/:id/cancel", {
      params: run,
      success: HttpApiSchema.Empty(200)
    }).annotateMerge(operation("administrator", 200, 403, 404, 503)),
    HttpApiEndpoint.get("history", "/management/pipelines/runs/:id/history", {
      params: run,
      query: { limit: LenientNumber, next_page_token: LenientNumber },
      success: Schema.Struct({ data: Schema.Array(AnyObject), next_page_token: Schema.optionalKey(Schema.String) })
    }).annotateMerge(operation("administrator_read", 200, 401, 404, 503)),
    HttpApiEndpoint.post("signal", "/management/pipelines/runs/:id/signal", {
      params: run,
      payload: Schema.Struct({
        signal_name: RequiredText,
        payload: nullable(FreeObject)
      }).annotate({ identifier: "PipelineSignal" }),
      success: HttpApiSchema.Empty(200)
    }).annotateMerge(operation("administrator", 200, 400, 403, 404, 503)),
    HttpApiEndpoint.get("stream", "/management/pipelines/runs/:id/stream", {
      params: run,
      success: EventStream
    }).annotateMerge(operation("administrator_read", 200, 404)),
    HttpApiEndpoint.post("terminate", "/management/pipelines/runs/:id/terminate", {
      params: run,
      payload: [
        HttpApiSchema.NoContent,
        Schema.Struct({ reason: Schema.optionalKey(Schema.Unknown) }).annotate({ identifier: "PipelineTermination" })
      ],
      success: HttpApiSchema.Empty(200)
    }).annotateMerge(operation("administrator", 200, 403, 404, 503))
  )
  .middleware(JsonBody)
  .middleware(ManagementAccess)
  .middleware(Enveloped) {}
