import type { SchemaIssue } from "effect"
import { invalidFormat, invalidValue, missingField, ValidationFailed } from "#domain/errors.ts"

const segment = (key: PropertyKey | { readonly key: PropertyKey }): string =>
  String(typeof key === "object" ? key.key : key)

const at = (path: ReadonlyArray<string>, slot: string): string => (path.length === 0 ? slot : path.join("."))

/**
 * The first fault of a schema failure as a `validation_error` whose `param` is its JSON path, `messages.0.content`.
 * `slot` stands for the whole (`body`) when the fault has no path. Offending values never appear in messages: they may
 * be secrets.
 */
export const firstIssue = (
  issue: SchemaIssue.Issue,
  slot: string,
  path: ReadonlyArray<string> = []
): ValidationFailed => {
  switch (issue._tag) {
    case "Pointer":
      return firstIssue(issue.issue, slot, [...path, ...issue.path.map(segment)])
    case "Composite":
      return firstIssue(issue.issues[0], slot, path)
    case "Encoding":
      return firstIssue(issue.issue, slot, path)
    case "Filter":
      return filtered(issue, slot, path)
    case "AnyOf":
      return anyOf(issue, slot, path)
    case "MissingKey":
      return path.length === 0
        ? new ValidationFailed({ code: "missing_field", message: `A ${slot} is required.` })
        : missingField(at(path, slot))
    case "UnexpectedKey":
      return invalidValue(at(path, slot), "This field is not expected here.")
    case "InvalidType":
      return mistyped(issue, slot, path)
    default:
      return invalidValue(at(path, slot), `'${at(path, slot)}' has an invalid value.`)
  }
}

const filtered = (issue: SchemaIssue.Filter, slot: string, path: ReadonlyArray<string>): ValidationFailed => {
  const inner = issue.issue
  if (inner._tag === "Pointer" || inner._tag === "Composite") return firstIssue(inner, slot, path)
  const param = at(path, slot)
  const expected = expectation(issue)
  const message = `'${param}' has an invalid value${expected === undefined ? "." : `: expected ${expected}.`}`
  const id = representationId(issue)
  if (id === "isMaxLength" || id === "isMaxCodePoints") {
    return new ValidationFailed({ code: "value_too_long", message: `'${param}' is too long.`, param })
  }
  if (id === "isPattern" || id === "isUUID") return invalidFormat(param, message)
  return invalidValue(param, message)
}

const anyOf = (issue: SchemaIssue.AnyOf, slot: string, path: ReadonlyArray<string>): ValidationFailed => {
  // Of a union's branches, the one that got furthest tells most: its fault lies deepest.
  const faults = issue.issues.map((branch) => firstIssue(branch, slot, path))
  const deepest = faults.reduce<ValidationFailed | undefined>(
    (best, fault) => (best === undefined || depth(fault) > depth(best) ? fault : best),
    undefined
  )
  const param = at(path, slot)
  // The value was of one branch's type alone: what that branch says is the fault.
  if (deepest !== undefined && (faults.length === 1 || depth(deepest) > path.length)) return deepest
  const alternatives = issue.ast.types.map((member) => typeNames[member._tag])
  return issue.issues.length === 0 && alternatives.every((name) => name !== undefined)
    ? invalidValue(param, `'${param}' must be ${[...new Set(alternatives)].join(" or ")}.`)
    : invalidValue(param, `'${param}' has an invalid value.`)
}

const depth = (fault: ValidationFailed): number => (fault.param === undefined ? 0 : fault.param.split(".").length)

const mistyped = (issue: SchemaIssue.InvalidType, slot: string, path: ReadonlyArray<string>): ValidationFailed => {
  const param = at(path, slot)
  const expected = expectedType(issue)
  if (path.length > 0 && "actual" in issue && issue.actual === undefined) return missingField(param)
  const message = `'${param}' must be ${expected ?? "of another type"}.`
  return path.length === 0 && slot === "body"
    ? new ValidationFailed({ code: "invalid_value", message: "The body must be a JSON object." })
    : invalidValue(param, message)
}

const expectedType = (issue: SchemaIssue.InvalidType): string | undefined => {
  const expected = issue.ast.annotations?.["expected"]
  return typeof expected === "string" ? expected : typeNames[issue.ast._tag]
}

const typeNames: Readonly<Record<string, string>> = {
  String: "a string",
  Number: "a number",
  Boolean: "true or false",
  Arrays: "an array",
  Objects: "an object",
  Literal: "one of the documented values",
  Null: "null"
}

const annotationOf = (issue: SchemaIssue.Filter, name: string): unknown =>
  (issue.filter.annotations as Readonly<Record<string, unknown>> | undefined)?.[name]

const expectation = (issue: SchemaIssue.Filter): string | undefined => {
  const expected = annotationOf(issue, "expected")
  return typeof expected === "string" ? expected : undefined
}

const representationId = (issue: SchemaIssue.Filter): string | undefined => {
  const representation = annotationOf(issue, "representation")
  if (typeof representation !== "object" || representation === null || !("id" in representation)) return undefined
  return String(representation.id).split("/").at(-1)
}
