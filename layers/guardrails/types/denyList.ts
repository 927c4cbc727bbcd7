import { booleanOf, stringsOf } from "#layers/guardrails/config.ts"
import { ConfigProblem, excerpt, type GuardrailType } from "#layers/guardrails/GuardrailType.ts"
import { makePhraseMatcher } from "#layers/guardrails/PhraseMatcher.ts"

const maxWords = 10_000
const maxLength = 500

/** Below U+0300 nothing combines, so that nearly every text is in this form already. */
const combining = /[\u0300-\uffff]/

const normalForm = (text: string): string => (combining.test(text) ? text.normalize("NFC") : text)

/**
 * Words and phrases that must not occur: `words` (or `list`), `case_sensitive` (false), `whole_word` (true). Letters are
 * compared after normalisation, so that accents made of two characters, full-width letters and invisible characters
 * change nothing.
 */
export const denyList: GuardrailType = {
  defaultStage: "pre",
  wholeAnswer: false,
  fields: ["words", "list", "deny_list", "phrases"],
  nameHint: /deny|block.?list|black.?list|banned|word.?list|profan/i,
  compile: (config) => {
    const words = stringsOf(config, denyList.fields, { count: maxWords, length: maxLength })
    if (words === undefined) throw new ConfigProblem("words", "is required", true)
    const matcher = makePhraseMatcher(words.values, {
      caseSensitive: booleanOf(config, "case_sensitive", false),
      wholeWord: booleanOf(config, "whole_word", true)
    })
    return {
      cost: 8,
      check: (texts) => {
        for (const text of texts) {
          const normal = normalForm(text)
          const match = matcher.first(normal)
          if (match !== undefined) return { confidence: null, original: excerpt(normal, match.start) }
        }
        return undefined
      }
    }
  }
}
