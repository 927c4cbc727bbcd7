/** Reads fields of a guardrail's config, which comes from outside: each failure names its field. */
import type { JsonObject } from "#domain/json.ts"
import { ConfigProblem } from "#layers/guardrails/GuardrailType.ts"

/** The strings of the first of the fields that is there; a single string counts as a list of one. */
export const stringsOf = (
  config: JsonObject,
  fields: ReadonlyArray<string>,
  limits: { readonly count: number; readonly length: number }
): { readonly field: string; readonly values: ReadonlyArray<string> } | undefined => {
  for (const field of fields) {
    const value = config[field]
    if (value === undefined || value === null) continue
    const values = typeof value === "string" ? [value] : value
    if (!Array.isArray(values)) throw new ConfigProblem(field, "must be an array of strings")
    if (values.length === 0) throw new ConfigProblem(field, "must not be empty")
    if (values.length > limits.count) throw new ConfigProblem(field, `must have at most ${limits.count} entries`)
    values.forEach((entry, i) => {
      const param = typeof value === "string" ? field : `${field}.${i}`
      if (typeof entry !== "string") throw new ConfigProblem(param, "must be a string")
      if (entry.trim() === "") throw new ConfigProblem(param, "must not be empty")
      if (entry.length > limits.length) throw new ConfigProblem(param, `must have at most ${limits.length} characters`)
    })
    return { field, values: values as ReadonlyArray<string> }
  }
  return undefined
}

export const booleanOf = (config: JsonObject, field: string, fallback: boolean): boolean => {
  const value = config[field]
  if (value === undefined || value === null) return fallback
  if (typeof value !== "boolean") throw new ConfigProblem(field, "must be true or false")
  return value
}

export const numberOf = (
  config: JsonObject,
  field: string,
  range: { readonly min: number; readonly max: number; readonly integer?: boolean }
): number | undefined => {
  const value = config[field]
  if (value === undefined || value === null) return undefined
  const wanted = range.integer === true ? "an integer" : "a number"
  if (
    typeof value !== "number" ||
    value < range.min ||
    value > range.max ||
    (range.integer === true && !Number.isInteger(value))
  ) {
    throw new ConfigProblem(field, `must be ${wanted} between ${range.min} and ${range.max}`)
  }
  return value
}

export const choiceOf = <const Choice extends string>(
  config: JsonObject,
  field: string,
  choices: ReadonlyArray<Choice>,
  fallback: Choice
): Choice => {
  const value = config[field]
  if (value === undefined || value === null) return fallback
  const choice = choices.find((candidate) => candidate === value)
  if (choice === undefined) throw new ConfigProblem(field, `must be one of ${choices.join(", ")}`)
  return choice
}

/** A string of the first of the fields that is there. */
export const textOf = (
  config: JsonObject,
  fields: ReadonlyArray<string>,
  maxLength: number
): { readonly field: string; readonly value: string } | undefined => {
  for (const field of fields) {
    const value = config[field]
    if (value === undefined || value === null) continue
    if (typeof value !== "string") throw new ConfigProblem(field, "must be a string")
    if (value.trim() === "") throw new ConfigProblem(field, "must not be empty")
    if (value.length > maxLength) throw new ConfigProblem(field, `must have at most ${maxLength} characters`)
    return { field, value }
  }
  return undefined
}

/** The fields of the types that ask a model or a service. */
export const inquiryOf = (
  config: JsonObject,
  defaults: { readonly timeout: number; readonly stream: "sentences" | "answer" }
) => ({
  timeout: numberOf(config, "timeout_ms", { min: 1, max: 60_000, integer: true }) ?? defaults.timeout,
  maxCharacters: numberOf(config, "max_characters_asked", { min: 1, max: 10_000_000, integer: true }) ?? 1_000_000,
  wholeAnswer: choiceOf(config, "stream", ["sentences", "answer"], defaults.stream) === "answer"
})

/** The name of a registered model. Whether there is one is only known when it is asked: models come and go. */
export const modelOf = (config: JsonObject): string => {
  const model = textOf(config, ["model"], 256)
  if (model === undefined) throw new ConfigProblem("model", "is required", true)
  return model.value
}
