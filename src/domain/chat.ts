import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"

const positiveInt = (value: Json | undefined): number | undefined =>
  typeof value === "number" && Number.isInteger(value) && value > 0 ? value : undefined

/** How many answers the caller wants to one prompt (`n`). */
export const choicesOf = (body: JsonObject): number => positiveInt(body["n"]) ?? 1

/** The most tokens that the caller lets the model generate, over all choices; undefined: it did not say. */
export const requestedTokens = (body: JsonObject): number | undefined => {
  const limit = positiveInt(body["max_completion_tokens"]) ?? positiveInt(body["max_tokens"])
  return limit === undefined ? undefined : limit * choicesOf(body)
}

/** The end user that the caller names (`user`, or `metadata.user_id` in the Anthropic shape); undefined: none. */
export const endUserOf = (body: JsonObject): string | undefined => {
  const metadata = body["metadata"]
  const user = body["user"] ?? (isJsonObject(metadata) ? metadata["user_id"] : undefined)
  return typeof user === "string" && user !== "" && user.length <= 256 ? user : undefined
}

/** More than any public provider charges for one image. */
const mostTokensPerImage = 2_000

/** A bound of the prompt's tokens that costs no counting: no tokenizer makes more tokens than a text has bytes. */
export const promptTokenBound = (bodyText: string, bodyBytes: number): number => {
  let bound = bodyBytes
  for (let at = bodyText.indexOf('"image'); at >= 0; at = bodyText.indexOf('"image', at + 6))
    bound += mostTokensPerImage
  return bound
}
