import { Ajv2020, type ErrorObject } from "ajv/dist/2020.js"
import type { JsonObject } from "#domain/json.ts"

/** What is wrong with a JSON Schema, and where: the path of names and indices to it. */
export interface SchemaProblem {
  readonly message: string
  readonly path: ReadonlyArray<string>
}

const segments = (pointer: string): ReadonlyArray<string> =>
  pointer
    .split("/")
    .slice(1)
    .map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"))

/** Inlining could make a short schema large. */
export const makeAjv = () => new Ajv2020({ strict: false, inlineRefs: false, allErrors: false, logger: false })

/** Undefined for a JSON Schema (2020-12) that can be used. Remote references cannot. */
export const schemaProblem = (schema: JsonObject): SchemaProblem | undefined => {
  const ajv = makeAjv()
  try {
    if (ajv.validateSchema(schema) !== true) {
      const error: ErrorObject | undefined = ajv.errors?.[0]
      return { message: error?.message ?? "is no JSON Schema", path: segments(error?.instancePath ?? "") }
    }
    ajv.compile(schema)
    return undefined
  } catch (cause) {
    return { message: cause instanceof Error ? cause.message : String(cause), path: [] }
  }
}
