import { isJsonObject, type Json } from "#domain/json.ts"

/**
 * The one text of a JSON value that everybody computes alike (RFC 8785, JSON Canonicalization Scheme): no white space,
 * names sorted by UTF-16 code units, numbers and strings as ECMAScript writes them. Throws a `TypeError` for what the
 * scheme refuses: a number that is not finite, a string with a lone surrogate.
 */
export const canonicalJson = (value: Json): string => (isPlain(value) ? JSON.stringify(value) : written(value))

/** Whether ECMAScript writes the object canonically by itself: its names are in order, and nothing in it is nested or refused. */
const isPlain = (value: Json): boolean => {
  if (!isJsonObject(value)) return false
  let previous: string | undefined
  for (const name in value) {
    const member: unknown = value[name]
    if (previous !== undefined && name <= previous) return false
    if (typeof member === "string") {
      if (!member.isWellFormed()) return false
    } else if (typeof member === "number") {
      if (!Number.isFinite(member)) return false
    } else if (member !== null && typeof member !== "boolean") return false
    if (!name.isWellFormed()) return false
    previous = name
  }
  return true
}

const written = (value: Json): string => {
  switch (typeof value) {
    case "string":
      return canonicalString(value)
    case "number":
      if (!Number.isFinite(value)) throw new TypeError("A number that is not finite has no canonical JSON")
      return JSON.stringify(value)
    case "boolean":
      return value ? "true" : "false"
  }
  if (value === null) return "null"
  if (!isJsonObject(value)) return `[${value.map(canonicalJson).join(",")}]`
  let text = ""
  for (const name of Object.keys(value).sort()) {
    const member = value[name]
    if (member === undefined) continue
    text += `${text === "" ? "" : ","}${canonicalString(name)}:${canonicalJson(member)}`
  }
  return `{${text}}`
}

const canonicalString = (text: string): string => {
  if (!text.isWellFormed()) throw new TypeError("A string with a lone surrogate has no canonical JSON")
  return JSON.stringify(text)
}
