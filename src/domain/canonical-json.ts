import { isJsonObject, type Json } from "#domain/json.ts"

/**
 * The one text of a JSON value that everybody computes alike (RFC 8785, JSON Canonicalization Scheme): no white space,
 * names sorted by UTF-16 code units, numbers and strings as ECMAScript writes them. Throws a `TypeError` for what the
 * scheme refuses: a number that is not finite, a string with a lone surrogate.
 */
export const canonicalJson = (value: Json): string => {
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
