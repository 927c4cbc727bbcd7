/** The whole contract. What is not added here is not served; OpenAPI is generated from it. */
import { HttpApi } from "effect/http-api"
import { CredentialGroup } from "#api/credentials.ts"
import { InferenceGroup, ModelListGroup } from "#api/inference.ts"
import { KeyGroup } from "#api/keys.ts"
import { ModelGroup } from "#api/models.ts"
import { OpenApiGroup, SchemaGroup } from "#api/openapi.ts"
import { UsageGroup } from "#api/usage.ts"

export class Api extends HttpApi.make("sluice").add(
  OpenApiGroup,
  SchemaGroup,
  ModelListGroup,
  InferenceGroup,
  UsageGroup,
  KeyGroup,
  ModelGroup,
  CredentialGroup
) {}
