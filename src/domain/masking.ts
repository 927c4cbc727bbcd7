/** What may be shown of secrets, and which parameters of a model are some. */
import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"

/** Below this many characters, nothing of a secret is shown. */
const shownFrom = 24

/** A secret as lists show it: of a long one the first and last four characters, of a short one nothing. */
export const maskText = (secret: string): string =>
  secret.length < shownFrom ? "****" : `${secret.slice(0, 4)}...${secret.slice(-4)}`.toWellFormed()

/** A copy in which every string value is masked, at any depth. */
export const maskStrings = (value: Json): Json => {
  if (typeof value === "string") return maskText(value)
  if (isJsonObject(value)) return maskObject(value)
  return Array.isArray(value) ? (value as ReadonlyArray<Json>).map(maskStrings) : value
}

/** The same for an object. */
export const maskObject = (value: JsonObject): JsonObject =>
  Object.fromEntries(Object.entries(value).map(([name, member]) => [name, maskStrings(member)]))

const secretName =
  /(^|_)(key|apikey|key_id|secret|password|passphrase|token|credentials?|authorization|headers)$|(^|_)(secret|private)_/i

const isSecretName = (name: string): boolean => secretName.test(name) && !/cost_per_|_per_token$/i.test(name)

const holdsText = (value: Json): boolean =>
  typeof value === "string"
    ? value !== ""
    : typeof value === "object" && value !== null && Object.values(value).some(holdsText)

const holdsSecret = (name: string, value: Json): boolean =>
  (isSecretName(name) && holdsText(value)) ||
  (isJsonObject(value) && Object.entries(value).some(([member, inner]) => holdsSecret(member, inner)))

/** A model's parameters, taken apart: what may be stored readable and shown, and what may not. */
export interface SplitParameters {
  /** Every parameter; the strings of secret ones are masked. */
  readonly shown: JsonObject
  /** The secret parameters as they are; laid over `shown`, they give the whole back. */
  readonly secret: JsonObject
}

/** Takes the parameters whose names speak of secrets (`api_key`, `extra_headers`, …) apart from the others. */
export const splitSecrets = (parameters: JsonObject): SplitParameters => {
  const entries = Object.entries(parameters)
  return {
    shown: Object.fromEntries(
      entries.map(([name, value]) => [name, holdsSecret(name, value) ? maskStrings(value) : value])
    ),
    secret: Object.fromEntries(entries.filter(([name, value]) => holdsSecret(name, value)))
  }
}

/**
 * Writes the given members over an object; null removes one. A member that is the mask of what is stored leaves it
 * untouched, so that who reads, edits and writes back does not overwrite secrets with stars.
 */
export const overlay = (stored: JsonObject, change: JsonObject): JsonObject => {
  const result: Record<string, Json> = { ...stored }
  for (const [name, value] of Object.entries(change)) {
    const before = stored[name]
    if (value === null) delete result[name]
    else if (before === undefined || !holdsText(before) || !sameJson(value, maskStrings(before))) result[name] = value
  }
  return result
}

const sameJson = (left: Json, right: Json): boolean => JSON.stringify(left) === JSON.stringify(right)
