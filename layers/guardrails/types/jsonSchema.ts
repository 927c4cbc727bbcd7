import { Ajv2020 } from "ajv/dist/2020.js"
import formats from "ajv-formats"
import { isJsonObject } from "#domain/json.ts"
import { ConfigProblem, excerpt, type GuardrailType } from "#layers/guardrails/GuardrailType.ts"
import { compilePattern } from "#layers/guardrails/types/regex.ts"

const maxSchemaLength = 65_536

/** Patterns of a schema come from outside, so they are RE2 as well. */
const linearTime = Object.assign(
  (pattern: string) => {
    const compiled = compilePattern(pattern, "schema")
    // The validator generator tells patterns apart by their text.
    return { test: (text: string) => compiled.test(text), toString: () => `/${pattern}/u` }
  },
  { code: "undefined" }
)

/** Answers that must be JSON of a schema (draft 2020-12): `schema`. No remote references. */
export const jsonSchema: GuardrailType = {
  defaultStage: "post",
  wholeAnswer: true,
  fields: ["schema", "json_schema"],
  nameHint: /json.?schema|schema/i,
  compile: (config) => {
    const field = config["schema"] === undefined && config["json_schema"] !== undefined ? "json_schema" : "schema"
    const schema = config[field]
    if (schema === undefined || schema === null) throw new ConfigProblem("schema", "is required", true)
    if (!isJsonObject(schema)) throw new ConfigProblem(field, "must be an object")
    if (JSON.stringify(schema).length > maxSchemaLength) throw new ConfigProblem(field, "is too large")
    const ajv = new Ajv2020({ strict: false, logger: false, code: { regExp: linearTime } })
    formats.default(ajv, { mode: "fast" })
    let validate: (value: unknown) => unknown
    try {
      validate = ajv.compile(schema)
    } catch (cause) {
      throw new ConfigProblem(field, `is not a usable schema: ${cause instanceof Error ? cause.message : "unknown"}`)
    }
    const conforms = (text: string): boolean => {
      let value: unknown
      try {
        value = JSON.parse(text)
      } catch {
        return false
      }
      return validate(value) === true
    }
    return {
      cost: 15,
      // A schema can compare each item with each other, or nest alternatives.
      worstCost: 10_000,
      check: (texts) => {
        for (const text of texts) if (!conforms(text)) return { confidence: null, original: excerpt(text) }
        return undefined
      }
    }
  }
}
