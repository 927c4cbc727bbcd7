/** Reading JSON that an upstream or a client wrote: nothing is believed before it is looked at. */
import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"

export const listOf = (value: Json | undefined): ReadonlyArray<Json> =>
  Array.isArray(value) ? (value as ReadonlyArray<Json>) : []

export const objectOf = (value: Json | undefined): JsonObject => (isJsonObject(value) ? value : {})

export const objectsOf = (value: Json | undefined): ReadonlyArray<JsonObject> => listOf(value).filter(isJsonObject)

export const stringOf = (value: Json | undefined): string | undefined => (typeof value === "string" ? value : undefined)

/** A count of tokens or units: a whole number that is not negative, 0 for everything else. */
export const countOf = (value: Json | undefined): number =>
  typeof value === "number" && Number.isFinite(value) && value > 0 ? Math.trunc(value) : 0

/** Undefined: not JSON. */
export const parseJson = (text: string | Buffer): Json | undefined => {
  try {
    return JSON.parse(typeof text === "string" ? text : text.toString()) as Json
  } catch {
    return undefined
  }
}

/** Undefined: nested deeper than it can be written. */
export const writeJson = (value: Json): string | undefined => {
  try {
    return JSON.stringify(value)
  } catch {
    return undefined
  }
}

/** The fields that have a value. */
export const present = (fields: Readonly<Record<string, Json | undefined>>): JsonObject => {
  const kept: Record<string, Json> = {}
  for (const [name, value] of Object.entries(fields)) if (value !== undefined) kept[name] = value
  return kept
}
