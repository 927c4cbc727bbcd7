import { createHash } from "node:crypto"
import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"

/** What the sandbox takes offence at: enough to see a text pass and a text fail. */
const offences: Readonly<Record<string, RegExp>> = {
  harassment: /\b(?:idiot|moron|shut up|stupid)\b/i,
  hate: /\b(?:hate|subhuman|vermin)\b/i,
  "self-harm": /\b(?:suicide|self-harm|kill myself)\b/i,
  sexual: /\b(?:porn|nude|sexual)\b/i,
  violence: /\b(?:kill|murder|stab|shoot|bomb)\b/i,
  illicit: /\b(?:steal|counterfeit|launder money)\b/i
}

const inputsOf = (input: Json | undefined): ReadonlyArray<string> | undefined => {
  const list = Array.isArray(input) ? (input as ReadonlyArray<Json>) : [input ?? null]
  if (list.length > 0 && list.every((one) => isJsonObject(one))) {
    // Parts of one text, as multimodal moderation has them.
    return [list.map((one) => (isJsonObject(one) && typeof one["text"] === "string" ? one["text"] : "")).join(" ")]
  }
  const texts = list.filter((one): one is string => typeof one === "string")
  return texts.length === list.length && texts.length > 0 ? texts : undefined
}

const resultOf = (text: string): JsonObject => {
  const categories = Object.fromEntries(Object.entries(offences).map(([name, words]) => [name, words.test(text)]))
  return {
    flagged: Object.values(categories).includes(true),
    categories,
    category_scores: Object.fromEntries(Object.entries(categories).map(([name, hit]) => [name, hit ? 0.97 : 0.01]))
  }
}

/** One result an input, by words. */
export const moderationAnswer = (
  model: string,
  body: JsonObject
): JsonObject | { readonly param: string; readonly why: string } => {
  const texts = inputsOf(body["input"])
  if (texts === undefined) return { param: "input", why: "must be a text, a list of texts or a list of parts" }
  const id = createHash("sha256").update(JSON.stringify(texts)).digest("hex").slice(0, 24)
  return { id: `modr-${id}`, model, results: texts.map(resultOf) }
}
