/** What callers of models may do with guardrails by themselves (model-api.md, "Guardrail helpers"). */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup } from "effect/http-api"
import { Enveloped, JsonBody, ModelAccess, operation } from "#api/access.ts"
import { guardrailModes } from "#domain/guardrails.ts"
import { isPiiEntity, piiEntities } from "#domain/pii.ts"

/** UTF-16 characters of a text at most. */
const maxTextLength = 4_000_000

const Text = Schema.String.check(Schema.isMaxLength(maxTextLength))

const EntityType = Schema.String.check(
  Schema.isMaxLength(40),
  Schema.makeFilter((name: string) => isPiiEntity(name.toUpperCase()), { expected: `one of ${piiEntities.join(", ")}` })
)

const BindingGuardrail = Schema.Struct({
  guardrail_name: Schema.String,
  guardrail_type: Schema.String,
  mode: Schema.Literals(guardrailModes),
  stage: Schema.Literals(["pre", "post", "both"])
})

const CheckResult = Schema.Struct({
  guardrail_name: Schema.String,
  status: Schema.Literals(["passed", "flagged", "blocked", "masked", "error"]),
  stage: Schema.Literals(["pre", "post"]),
  confidence: Schema.NullOr(Schema.Finite),
  duration_ms: Schema.Finite,
  modified_content: Schema.NullOr(Schema.String)
})

const RedactionToken = Schema.Struct({
  token: Schema.String,
  entity_type: Schema.Literals(piiEntities),
  start: Schema.Int,
  end: Schema.Int
})

export class GuardrailHelperGroup extends HttpApiGroup.make("guardrail_helpers")
  .add(
    HttpApiEndpoint.get("available", "/v1/guardrails/available", {
      success: Schema.Struct({ guardrails: Schema.Array(BindingGuardrail) })
    }).annotateMerge(operation("model", 200, 401)),
    HttpApiEndpoint.post("check", "/v1/guardrails/check", {
      payload: Schema.Struct({ text: Text }),
      success: Schema.Struct({ safe: Schema.Boolean, results: Schema.Array(CheckResult) })
    }).annotateMerge(operation("model", 200, 400, 401)),
    HttpApiEndpoint.post("redact", "/v1/guardrails/redact", {
      payload: Schema.Struct({
        text: Text,
        entity_types: Schema.optionalKey(Schema.NullOr(Schema.Array(EntityType).check(Schema.isMaxLength(100))))
      }),
      success: Schema.Struct({ text: Schema.String, tokens: Schema.Array(RedactionToken) })
    }).annotateMerge(operation("model", 200, 400, 401)),
    HttpApiEndpoint.post("rehydrate", "/v1/guardrails/rehydrate", {
      payload: Schema.Struct({ text: Text }),
      success: Schema.Struct({ text: Schema.String })
    }).annotateMerge(operation("model", 200, 400, 401))
  )
  .middleware(JsonBody)
  .middleware(ModelAccess)
  .middleware(Enveloped) {}
