/** Batch UDF, for the query engine's plugin (model-api.md, "Eval worker, traces, sessions, usage, batch UDF"). */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup } from "effect/http-api"
import { Enveloped, operation } from "#api/access.ts"

const Item = Schema.Struct({
  function: Schema.String,
  model: Schema.String,
  input: Schema.String,
  args: Schema.optionalKey(Schema.NullOr(Schema.Record(Schema.String, Schema.Unknown)))
}).annotate({ identifier: "UDFInvocation" })

const Result = Schema.Struct({ Output: Schema.String, Error: Schema.String }).annotate({ identifier: "UDFResult" })

export class UdfGroup extends HttpApiGroup.make("udf")
  .add(
    HttpApiEndpoint.post("batch", "/v1/batch/udf", {
      headers: {
        "X-Query-Engine-User": Schema.optionalKey(Schema.String),
        "X-Query-Engine-Query-Id": Schema.optionalKey(Schema.String)
      },
      payload: Schema.Struct({ items: Schema.Array(Item) }).annotate({ identifier: "UDFBatchRequest" }),
      success: Schema.Struct({ items: Schema.Array(Result) }).annotate({ identifier: "UDFBatchResponse" })
    }).annotateMerge(operation("client_certificate", 200, 400, 401, 403))
  )
  .middleware(Enveloped) {}
