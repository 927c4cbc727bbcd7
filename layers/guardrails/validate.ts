import { invalidValue, missingField, type ValidationFailed } from "#domain/errors.ts"
import { type GuardrailDefinition, guardrailModes } from "#domain/guardrails.ts"
import type { JsonObject } from "#domain/json.ts"
import { ConfigProblem, type GuardrailType } from "#layers/guardrails/GuardrailType.ts"
import { booleanOf, choiceOf } from "#layers/guardrails/config.ts"
import { guardrailTypes, typeOf } from "#layers/guardrails/types.ts"
import type { GuardrailDraft } from "#services/guardrails/GuardrailEngine.ts"

const stages = ["pre", "post", "both"] as const

/** The fields that every type has. Throws `ConfigProblem`. */
export const commonOf = (type: GuardrailType, config: JsonObject) => ({
  stage: choiceOf(config, "stage", stages, type.defaultStage),
  failOpen: booleanOf(config, "fail_open", false)
})

/**
 * The type that a config's fields or else a name speak of (management-api.md: an empty type is inferred from the name or
 * the shape); undefined where neither does.
 */
export const inferGuardrailType = (name: string, config: JsonObject): string | undefined => {
  const types = Object.entries<GuardrailType>(guardrailTypes)
  const byShape = types.find(([, type]) => type.fields.some((field) => config[field] !== undefined))
  return (byShape ?? types.find(([, type]) => type.nameHint.test(name)))?.[0]
}

/** What is wrong with a guardrail that is to be stored; undefined when nothing is. The failure names the field. */
export const validateGuardrailConfig = (
  type: string,
  mode: string,
  config: JsonObject
): ValidationFailed | undefined => {
  if (mode === "") return missingField("mode")
  if (!guardrailModes.some((known) => known === mode)) return invalidValue("mode", "'mode' must be log or block.")
  const known = typeOf(type)
  if (known === undefined) {
    return invalidValue("guardrail_type", `'guardrail_type' must be one of ${Object.keys(guardrailTypes).join(", ")}.`)
  }
  try {
    commonOf(known, config)
    known.compile(config)
    return undefined
  } catch (cause) {
    if (!(cause instanceof ConfigProblem)) return invalidValue("config", "'config' cannot be compiled.")
    const param = `config.${cause.param}`
    return cause.missing ? missingField(param) : invalidValue(param, `'${param}' ${cause.message}.`)
  }
}

/** Completes a draft; see `GuardrailEngine.validate`. */
export const completeDraft = (draft: GuardrailDraft): ValidationFailed | Omit<GuardrailDefinition, "id"> => {
  const type = draft.type === "" ? inferGuardrailType(draft.name, draft.config) : draft.type
  if (type === undefined) return missingField("guardrail_type")
  const problem = validateGuardrailConfig(type, draft.mode, draft.config)
  if (problem !== undefined) return problem
  return { name: draft.name, type, mode: draft.mode === "log" ? "log" : "block", config: draft.config }
}
