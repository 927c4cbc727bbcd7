import { assert, describe, it } from "vitest"
import { makePhraseMatcher, type PhraseMatch } from "#layers/guardrails/PhraseMatcher.ts"

/** More distinct characters than the table has columns for, so that the same phrases are found by links. */
const manyCharacters = String.fromCharCode(...Array.from({ length: 300 }, (_, i) => 0x4e00 + i))

/** A small alphabet meets itself often: spaces of two kinds, what is folded away, and both cases. */
const alphabet = ["a", "b", "A", " ", "\t", "\u200b", "\0", "é"]

const randomText = (next: () => number, length: number): string =>
  Array.from({ length }, () => alphabet[Math.floor(next() * alphabet.length)]!).join("")

/** Mulberry32: the same numbers in every run. */
const numbers = (seed: number) => () => {
  seed = (seed + 0x6d2b79f5) | 0
  let t = Math.imul(seed ^ (seed >>> 15), 1 | seed)
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
  return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296
}

describe("PhraseMatcher", () => {
  it("finds the same by its table and by its links", () => {
    const next = numbers(7)
    let found = 0
    for (let round = 0; round < 400; round++) {
      const phrases = Array.from({ length: 1 + Math.floor(next() * 4) }, () =>
        randomText(next, 1 + Math.floor(next() * 4))
      )
      const options = { caseSensitive: next() < 0.5, wholeWord: next() < 0.5 }
      const text = randomText(next, 40)
      const all = (list: ReadonlyArray<string>): ReadonlyArray<PhraseMatch> => {
        const matches: Array<PhraseMatch> = []
        makePhraseMatcher(list, options).each(text, (match) => {
          matches.push(match)
          return false
        })
        return matches
      }
      const byTable = all(phrases)
      assert.deepStrictEqual(byTable, all([...phrases, manyCharacters]), JSON.stringify({ phrases, text, options }))
      found += byTable.length
    }
    assert.isAbove(found, 500)
  })
})
