import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"
import { countTokens } from "#layers/inference/sandbox/tokens.ts"

const usualDimensions = 256
const mostDimensions = 4_096
const mostInputs = 2_048
const longestInput = 65_536

const fnv = (text: string): number => {
  let hash = 0x811c9dc5
  for (let index = 0; index < text.length; index += 1) hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193)
  return hash >>> 0
}

/** Spreads a hash, so that its low bits and its sign are as good as its high ones. */
const mixed = (hash: number): number => {
  let mix = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b)
  mix = Math.imul(mix ^ (mix >>> 13), 0xc2b2ae35)
  return (mix ^ (mix >>> 16)) >>> 0
}

/** A unit vector of hashed words and letter trigrams: texts that share them are near. */
export const embed = (text: string, dimensions: number): Float32Array => {
  const vector = new Float32Array(dimensions)
  const add = (gram: string, weight: number) => {
    const hash = mixed(fnv(gram))
    const at = (hash >>> 1) % dimensions
    vector[at] = (vector[at] ?? 0) + (hash & 1 ? weight : -weight)
  }
  for (const word of text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []) {
    add(word, 1)
    const padded = ` ${word} `
    for (let at = 0; at + 3 <= padded.length; at += 1) add(padded.slice(at, at + 3), 0.5)
  }
  let square = 0
  for (const value of vector) square += value * value
  if (square === 0) vector[0] = 1
  else for (let at = 0; at < dimensions; at += 1) vector[at] = (vector[at] ?? 0) / Math.sqrt(square)
  return vector
}

const isTokens = (value: Json): value is ReadonlyArray<number> =>
  Array.isArray(value) && value.length > 0 && value.every((one) => typeof one === "number")

const inputsOf = (input: Json | undefined): ReadonlyArray<string> | undefined => {
  if (input === undefined) return undefined
  const list: ReadonlyArray<Json> = Array.isArray(input) && !isTokens(input) ? input : [input]
  const texts = list.map((one) => (typeof one === "string" ? one : isTokens(one) ? one.join(" ") : undefined))
  if (texts.length === 0 || texts.length > mostInputs) return undefined
  return texts.every((text) => text !== undefined) ? texts.map((text) => text.slice(0, longestInput)) : undefined
}

/** The answer to an embeddings request, or what is wrong with it. */
export const embedAnswer = (
  model: string,
  body: JsonObject
): JsonObject | { readonly param: string; readonly why: string } => {
  if (!isJsonObject(body)) return { param: "input", why: "is missing" }
  const texts = inputsOf(body["input"])
  if (texts === undefined) {
    return { param: "input", why: `must be a text, a token list, or a list of at most ${mostInputs} of these` }
  }
  const dimensions = body["dimensions"] ?? usualDimensions
  if (
    typeof dimensions !== "number" ||
    !Number.isInteger(dimensions) ||
    dimensions < 1 ||
    dimensions > mostDimensions
  ) {
    return { param: "dimensions", why: `must be a whole number between 1 and ${mostDimensions}` }
  }
  const base64 = body["encoding_format"] === "base64"
  const tokens = texts.reduce((sum, text) => sum + countTokens(text), 0)
  return {
    object: "list",
    data: texts.map((text, index) => {
      const vector = embed(text, dimensions)
      const bytes = Buffer.from(vector.buffer, vector.byteOffset, vector.byteLength)
      return { object: "embedding", index, embedding: base64 ? bytes.toString("base64") : [...vector] }
    }),
    model,
    usage: { prompt_tokens: tokens, total_tokens: tokens }
  }
}
