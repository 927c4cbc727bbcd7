/** The whole contract. What is not added here is not served; OpenAPI is generated from it. */
import { HttpApi } from "effect/http-api"
import { InferenceGroup, ModelListGroup } from "#api/inference.ts"
import { OpenApiGroup, SchemaGroup } from "#api/openapi.ts"
import { UsageGroup } from "#api/usage.ts"

export class Api extends HttpApi.make("sluice").add(
  OpenApiGroup,
  SchemaGroup,
  ModelListGroup,
  InferenceGroup,
  UsageGroup
) {}
