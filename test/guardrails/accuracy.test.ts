import { assert, describe, it } from "vitest"
import { piiEntities } from "#domain/pii.ts"
import {
  accuracyTable,
  injectionTexts,
  measureInjection,
  measurePii,
  piiTexts,
  precisionOf,
  recallOf,
  type Split,
  unmarked
} from "#test/guardrails/accuracy.ts"
import { readFileSync } from "node:fs"

/** Least precision and recall, in percent, over all texts. */
const floors: { readonly [Entity in (typeof piiEntities)[number]]: readonly [precision: number, recall: number] } = {
  EMAIL: [92, 92],
  PHONE: [95, 95],
  CREDIT_CARD: [99, 99],
  IBAN: [99, 99],
  US_SSN: [99, 99],
  IP_ADDRESS: [95, 95],
  URL: [95, 95],
  PERSON: [90, 90],
  API_KEY: [95, 80]
}

const of = <A extends { readonly split: Split }>(texts: ReadonlyArray<A>, split: Split) =>
  texts.filter((text) => text.split === split)

describe("the labelled texts", () => {
  it("are 500, of many languages, half of them without anything to find", () => {
    assert.lengthOf([...piiTexts, ...injectionTexts], 500)
    assert.isAtLeast(new Set([...piiTexts, ...injectionTexts].map(({ lang }) => lang)).size, 20)
    assert.isAtLeast(piiTexts.filter(({ text }) => unmarked(text).spans.length === 0).length, 100)
    assert.lengthOf(
      injectionTexts.filter(({ attack }) => attack),
      100
    )
    assert.strictEqual(new Set([...piiTexts, ...injectionTexts].map(({ text }) => text)).size, 500)
    for (const { spans } of piiTexts.map(({ text }) => unmarked(text))) {
      for (const { entity } of spans) assert.include(piiEntities, entity)
    }
  })
})

describe("personal data", () => {
  const { counts } = measurePii(piiTexts)
  for (const entity of piiEntities) {
    it(entity, () => {
      const [precision, recall] = floors[entity]
      assert.isAtLeast(precisionOf(counts.get(entity)!) * 100, precision, "precision")
      assert.isAtLeast(recallOf(counts.get(entity)!) * 100, recall, "recall")
    })
  }
})

describe("prompt injection", () => {
  it("all texts", () => {
    const { counts } = measureInjection(injectionTexts)
    assert.isAtLeast(precisionOf(counts), 0.97)
    assert.isAtLeast(recallOf(counts), 0.88)
  })

  it("the texts that were held out", () => {
    const { counts } = measureInjection(of(injectionTexts, "held_out"))
    assert.isAtLeast(precisionOf(counts), 0.97)
    assert.isAtLeast(recallOf(counts), 0.85)
  })
})

it("the table in the docs is this one", () => {
  const published = readFileSync(new URL("../../docs/guardrails.md", import.meta.url), "utf8")
  assert.include(published, accuracyTable())
})
