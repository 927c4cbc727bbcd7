/** Provider credentials (management-api.md, "credential"): for administrators of the instance alone. */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema } from "effect/http-api"
import { Enveloped, JsonBody, ManagementAccess, operation } from "#api/access.ts"
import { AnyObject, FreeObject, nullable, RequiredText, ShortText } from "#api/fields.ts"
import { isStorableText } from "#domain/storable.ts"

/** The values in another form: a JSON object, as a text too, or the bare API key. */
const CredentialValues = Schema.Union([
  Schema.String.check(
    Schema.isMaxLength(65_536),
    Schema.makeFilter(isStorableText, { expected: "text without NUL characters" })
  ),
  FreeObject
])

/** By `id` or `credential_id` the row, by `credential_name` alone the name. */
const reference = {
  credential_id: nullable(ShortText),
  id: nullable(ShortText),
  credential_name: nullable(ShortText)
}

const CredentialReference = Schema.Struct(reference).annotate({ identifier: "CredentialReference" })

const CredentialCreation = Schema.Struct({
  credential_name: nullable(ShortText),
  credential_info: nullable(FreeObject),
  credential_values: nullable(CredentialValues)
}).annotate({ identifier: "CredentialCreation" })

const CredentialUpdate = Schema.Struct({
  ...reference,
  credential_info: nullable(FreeObject),
  credential_values: nullable(CredentialValues)
}).annotate({ identifier: "CredentialUpdate" })

const credential = {
  id: Schema.String,
  credential_id: Schema.String,
  credential_name: Schema.NullOr(Schema.String),
  credential_info: AnyObject,
  created_by: Schema.String,
  created_at: Schema.String,
  updated_at: Schema.String
}

const Credential = Schema.Struct(credential).annotate({ identifier: "Credential" })

const ProvisionedCredential = Schema.Struct({
  ...credential,
  models_synchronized: Schema.Int,
  /** Why no models were synchronized; null: they were. */
  reason: Schema.NullOr(Schema.String)
}).annotate({ identifier: "ProvisionedCredential" })

const ProviderPreset = Schema.Struct({
  name: Schema.String,
  api_base: Schema.NullOr(Schema.String),
  custom_llm_provider: Schema.String,
  api_key_header: Schema.NullOr(Schema.String),
  detected: Schema.Boolean
}).annotate({ identifier: "ProviderPreset" })

export class CredentialGroup extends HttpApiGroup.make("credential")
  .add(
    HttpApiEndpoint.post("delete", "/credential/delete", {
      payload: CredentialReference,
      success: Schema.Struct({ deleted: Schema.Boolean })
    }).annotateMerge(operation("instance_admin", 200, 401, 404)),
    HttpApiEndpoint.get("list", "/credential/list", {
      success: Schema.Struct({ data: Schema.Array(Credential) })
    }).annotateMerge(operation("instance_admin", 200, 401)),
    HttpApiEndpoint.post("new", "/credential/new", {
      payload: CredentialCreation,
      success: Schema.Struct({ credential_id: Schema.String }).pipe(HttpApiSchema.status(201))
    }).annotateMerge(operation("instance_admin", 201, 400, 401)),
    HttpApiEndpoint.get("presets", "/credential/provider-presets", {
      success: Schema.Struct({ data: Schema.Array(ProviderPreset) })
    }).annotateMerge(operation("instance_admin", 200, 401)),
    HttpApiEndpoint.post("provision", "/credential/provision-from-env", {
      payload: Schema.Struct({ provider: RequiredText }),
      success: ProvisionedCredential.pipe(HttpApiSchema.status(201))
    }).annotateMerge(operation("instance_admin", 201, 400, 401, 404)),
    HttpApiEndpoint.post("update", "/credential/update", {
      payload: CredentialUpdate,
      success: Schema.Struct({ updated: Schema.Boolean })
    }).annotateMerge(operation("instance_admin", 200, 401, 404))
  )
  .middleware(JsonBody)
  .middleware(ManagementAccess)
  .middleware(Enveloped) {}
