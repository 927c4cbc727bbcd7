import { numberOf } from "#layers/guardrails/config.ts"
import { ConfigProblem, excerpt, type GuardrailType } from "#layers/guardrails/GuardrailType.ts"

const range = { min: 0, max: 1_000_000_000, integer: true }

const countWords = (text: string): number => {
  let words = 0
  let inside = false
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i)
    const blank = code <= 32 || code === 0xa0 || code === 0x3000
    if (!blank && !inside) words++
    inside = !blank
  }
  return words
}

/** Bounds over all texts of a call together: `max_characters`, `min_characters` (UTF-16), `max_words`. */
export const length: GuardrailType = {
  defaultStage: "pre",
  wholeAnswer: true,
  fields: ["max_characters", "min_characters", "max_words"],
  nameHint: /length|too.?long|max.?(?:chars|size|words)/i,
  compile: (config) => {
    const maxCharacters = numberOf(config, "max_characters", range)
    const minCharacters = numberOf(config, "min_characters", range)
    const maxWords = numberOf(config, "max_words", range)
    if (maxCharacters === undefined && minCharacters === undefined && maxWords === undefined) {
      throw new ConfigProblem("max_characters", "is required, or min_characters, or max_words", true)
    }
    return {
      cost: maxWords === undefined ? 0 : 2,
      check: (texts) => {
        let characters = 0
        let words = 0
        for (const text of texts) {
          characters += text.length
          if (maxWords !== undefined) words += countWords(text)
        }
        const fits =
          characters <= (maxCharacters ?? Infinity) &&
          characters >= (minCharacters ?? 0) &&
          words <= (maxWords ?? Infinity)
        return fits ? undefined : { confidence: null, original: excerpt(texts.join("\n")) }
      }
    }
  }
}
