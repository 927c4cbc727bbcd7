import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"
import { countTokens } from "#layers/inference/sandbox/tokens.ts"

const mostDocuments = 1_000
const longestDocument = 65_536

const termsOf = (text: string): ReadonlyArray<string> =>
  text
    .slice(0, longestDocument)
    .toLowerCase()
    .match(/[\p{L}\p{N}]+/gu) ?? []

const textOf = (document: Json): string | undefined =>
  typeof document === "string"
    ? document
    : isJsonObject(document) && typeof document["text"] === "string"
      ? document["text"]
      : undefined

/** Okapi BM25 with k1 = 1.2 and b = 0.75, over the documents at hand. */
export const bm25 = (query: string, documents: ReadonlyArray<string>): ReadonlyArray<number> => {
  const terms = [...new Set(termsOf(query))]
  const bags = documents.map((document) => {
    const counts = new Map<string, number>()
    const words = termsOf(document)
    for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1)
    return { counts, length: words.length }
  })
  const average = bags.reduce((sum, bag) => sum + bag.length, 0) / bags.length || 1
  const rarity = new Map(
    terms.map((term) => {
      const holding = bags.filter((bag) => bag.counts.has(term)).length
      return [term, Math.log(1 + (bags.length - holding + 0.5) / (holding + 0.5))]
    })
  )
  return bags.map(({ counts, length }) =>
    terms.reduce((sum, term) => {
      const count = counts.get(term) ?? 0
      const weight = (count * 2.2) / (count + 1.2 * (0.25 + (0.75 * length) / average))
      return sum + weight * (rarity.get(term) ?? 0)
    }, 0)
  )
}

/** Documents by relevance, the score brought into [0, 1); equal ones keep their order. */
export const rerankAnswer = (
  model: string,
  body: JsonObject
): JsonObject | { readonly param: string; readonly why: string } => {
  const { documents, query, return_documents: returned, top_n: top } = body
  if (typeof query !== "string") return { param: "query", why: "must be a text" }
  const list = Array.isArray(documents) ? (documents as ReadonlyArray<Json>) : []
  const texts = list.flatMap((document) => textOf(document) ?? [])
  if (list.length === 0 || list.length > mostDocuments || texts.length !== list.length) {
    return { param: "documents", why: `must be a list of 1 to ${mostDocuments} texts` }
  }
  const scores = bm25(query, texts)
  const tokens = countTokens(query) + texts.reduce((sum, text) => sum + countTokens(text), 0)
  const results = scores
    .map((score, index) => ({ index, relevance_score: Number((score / (score + 1)).toFixed(6)) }))
    .sort((left, right) => right.relevance_score - left.relevance_score || left.index - right.index)
    .slice(0, typeof top === "number" && top > 0 ? top : undefined)
    .map((result) => (returned === true ? { ...result, document: { text: texts[result.index]! } } : result))
  return {
    model,
    results,
    meta: { api_version: { version: "2" }, billed_units: { search_units: 1 } },
    usage: { prompt_tokens: tokens, total_tokens: tokens }
  }
}
