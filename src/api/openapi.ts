/** The machine-readable contract (management-api.md, "openapi and schema"). */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema } from "effect/http-api"
import { Enveloped, ManagementAccess, operation } from "#api/access.ts"

const Yaml = Schema.String.pipe(HttpApiSchema.asText({ contentType: "application/yaml" }))

/** Public: no authentication. */
export class OpenApiGroup extends HttpApiGroup.make("openapi")
  .add(
    HttpApiEndpoint.get("file", "/openapi/:filename", {
      params: { filename: Schema.String },
      success: Yaml
    }).annotateMerge(operation("public", 200, 404))
  )
  .middleware(Enveloped) {}

export class SchemaGroup extends HttpApiGroup.make("schema")
  .add(
    HttpApiEndpoint.get("management", "/management/schema", {
      success: Schema.Record(Schema.String, Schema.Unknown)
    }).annotateMerge(operation("administrator_read", 200, 401))
  )
  .middleware(ManagementAccess)
  .middleware(Enveloped) {}
