/** Traces and sessions: projections of the provenance chain (model-api.md, "Eval worker, traces, sessions"). */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup } from "effect/http-api"
import { Enveloped, ModelAccess, operation } from "#api/access.ts"
import { AnyObject } from "#api/fields.ts"

const TraceEvent = Schema.Struct({
  id: Schema.String,
  sequence_number: Schema.Int,
  action: Schema.String,
  tenant_id: Schema.String,
  payload: AnyObject,
  payload_hash: Schema.String,
  created_at: Schema.String,
  request_id: Schema.NullOr(Schema.String)
}).annotate({ identifier: "TraceEvent" })

const Session = Schema.Struct({
  id: Schema.String,
  request_id: Schema.String,
  tenant_id: Schema.String,
  started_at: Schema.String,
  ended_at: Schema.String,
  event_count: Schema.Int,
  actions: Schema.Array(Schema.String),
  first_sequence_number: Schema.Int,
  last_sequence_number: Schema.Int
}).annotate({ identifier: "Session" })

/** Integers; what is none, or out of range, is clamped and never refused. */
const paging = { limit: Schema.optionalKey(Schema.String), offset: Schema.optionalKey(Schema.String) }

export class TraceGroup extends HttpApiGroup.make("trace")
  .add(
    HttpApiEndpoint.get("list", "/v1/traces", {
      query: paging,
      success: Schema.Struct({ object: Schema.Literal("list"), data: Schema.Array(TraceEvent) })
    }).annotateMerge(operation("model", 200, 401)),
    HttpApiEndpoint.get("find", "/v1/traces/:id", {
      params: { id: Schema.String },
      success: TraceEvent
    }).annotateMerge(operation("model", 200, 401, 404)),
    HttpApiEndpoint.get("sessions", "/v1/sessions", {
      query: paging,
      success: Schema.Struct({ object: Schema.Literal("list"), data: Schema.Array(Session) })
    }).annotateMerge(operation("model", 200, 401))
  )
  .middleware(ModelAccess)
  .middleware(Enveloped) {}
