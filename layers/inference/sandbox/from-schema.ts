import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"

const deepest = 8

const typeOf = (schema: JsonObject): Json | undefined => {
  const type = schema["type"]
  if (Array.isArray(type)) return (type as ReadonlyArray<Json>).find((one) => one !== "null")
  return type ?? (isJsonObject(schema["properties"]) ? "object" : undefined)
}

/** The smallest plausible value of a JSON Schema: enough for tools and structured outputs to go on with. */
export const valueFor = (schema: Json | undefined, text: string, depth = 0): Json => {
  if (!isJsonObject(schema) || depth > deepest) return null
  if (schema["const"] !== undefined) return schema["const"]
  if (Array.isArray(schema["enum"])) return (schema["enum"] as ReadonlyArray<Json>)[0] ?? null
  if (schema["default"] !== undefined) return schema["default"]
  const [choice] = [schema["anyOf"], schema["oneOf"], schema["allOf"]].filter((one) => Array.isArray(one))
  if (choice !== undefined) return valueFor((choice as ReadonlyArray<Json>)[0], text, depth + 1)
  const least = schema["minimum"]
  switch (typeOf(schema)) {
    case "object": {
      const properties = isJsonObject(schema["properties"]) ? schema["properties"] : {}
      return Object.fromEntries(Object.entries(properties).map(([name, of]) => [name, valueFor(of, text, depth + 1)]))
    }
    case "array":
      return typeof schema["minItems"] === "number" && schema["minItems"] > 0
        ? [valueFor(schema["items"], text, depth + 1)]
        : []
    case "string":
      return typeof schema["maxLength"] === "number" ? text.slice(0, schema["maxLength"]) : text
    case "integer":
    case "number":
      return typeof least === "number" ? least : 0
    case "boolean":
      return true
    default:
      return null
  }
}
