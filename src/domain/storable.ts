import { isJsonObject, type Json } from "#domain/json.ts"

/** Whether PostgreSQL can hold a text: no NUL, no half of a surrogate pair. */
export const isStorableText = (text: string): boolean => !text.includes("\0") && text.isWellFormed()

/** Whether `jsonb` can hold a value: every string and name in it, and no number that is not finite. */
export const isStorableJson = (value: Json): boolean => {
  if (typeof value === "string") return isStorableText(value)
  if (typeof value === "number") return Number.isFinite(value)
  if (typeof value !== "object" || value === null) return true
  if (!isJsonObject(value)) return value.every(isStorableJson)
  return Object.entries(value).every(([name, member]) => isStorableText(name) && isStorableJson(member))
}
