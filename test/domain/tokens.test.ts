import { assert, it } from "@effect/vitest"
import { countTokens as reference } from "gpt-tokenizer/encoding/o200k_base"
import { describe } from "vitest"
import { promptParts, promptTokenUpperBound, tokenUpperBound } from "#domain/tokens.ts"
import { countTokens } from "#layers/tokens/o200k.ts"

const exact = (text: string): number => {
  const count = countTokens(text)
  for (;;) {
    const step = count.next()
    if (step.done === true) return step.value
  }
}

const plain = { disallowedSpecial: new Set<string>() }

/** A small deterministic generator, so that a failure can be repeated. */
const random = (seed: number) => () => {
  seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0
  return seed / 2 ** 32
}

const alphabets: ReadonlyArray<(next: () => number) => string> = [
  (next) => String.fromCharCode(32 + Math.floor(next() * 95)),
  (next) => "a1B 2\n\t/'".charAt(Math.floor(next() * 9)),
  (next) => String.fromCodePoint(0x4e00 + Math.floor(next() * 20_000)),
  (next) => String.fromCodePoint(0x1f300 + Math.floor(next() * 700)),
  (next) => String.fromCodePoint(0xa0 + Math.floor(next() * 0x2000)),
  (next) => String.fromCodePoint(0xa500 + Math.floor(next() * 300)),
  (next) => String.fromCharCode(Math.floor(next() * 65_536)),
  (next) => String.fromCodePoint(Math.floor(next() * 0x10ffff)),
  (next) => ["the ", "Über", "don't", "  ", "\r\n", "://", "日本", "👩‍👩‍👧", "e\u0301", "\u200d"][Math.floor(next() * 10)]!
]

const adversarial = [
  "",
  "a",
  "a1".repeat(200),
  "aB".repeat(200),
  "\ua500".repeat(100),
  "\u{1f9ff}".repeat(100),
  "\ud800",
  "\udc00\ud800",
  "<|endoftext|><|im_start|>",
  "\u0000".repeat(50),
  " ".repeat(500),
  "\n \n \r\n ".repeat(50),
  "'s'LL'Re",
  "=".repeat(300),
  "0".repeat(300)
]

describe("tokens", () => {
  it("never bounds below the real count, and counts what the reference counts", () => {
    const next = random(7)
    const samples = [...adversarial]
    for (let i = 0; i < 900; i++) {
      const letter = alphabets[i % alphabets.length]!
      samples.push(Array.from({ length: Math.floor(next() * 120) }, () => letter(next)).join(""))
    }
    for (const text of samples) {
      const count = reference(text, plain)
      assert.isAtLeast(tokenUpperBound(text), count, JSON.stringify(text))
      assert.strictEqual(exact(text), count, JSON.stringify(text))
    }
  })

  it("is tight where it must be: a token for each byte", () => {
    assert.strictEqual(exact("a1".repeat(50)), tokenUpperBound("a1".repeat(50)))
  })

  it("counts long runs in time, within a token per 4096 characters", () => {
    const next = random(3)
    const cjk = Array.from({ length: 20_000 }, () => String.fromCodePoint(0x4e00 + Math.floor(next() * 20_000))).join(
      ""
    )
    const start = performance.now()
    const whole = exact(cjk)
    assert.isBelow(performance.now() - start, 3000)
    let parts = 0
    for (let at = 0; at < cjk.length; at += 100) parts += reference(cjk.slice(at, at + 100), plain)
    assert.isAtMost(Math.abs(whole - parts), 2 * (cjk.length / 100))
    assert.isAbove(exact("a".repeat(300_000)), 0)
    assert.isAbove(exact(" ".repeat(2_500_000) + "x"), 0)
  })

  it("cuts segments of a large text without changing the count", () => {
    const sentence = "The quick brown fox jumps over the lazy dog, isn't it? "
    const text = sentence.repeat(Math.ceil(1_300_000 / sentence.length))
    const single = reference(sentence + sentence, plain) - reference(sentence, plain)
    assert.closeTo(exact(text), single * (text.length / sentence.length), 3)
  })

  it("takes a request apart", () => {
    const body = {
      model: "m",
      messages: [
        { role: "system", content: "Be brief." },
        {
          role: "user",
          content: [
            { type: "text", text: "What is this?" },
            { type: "image_url", image_url: { url: `data:image/png;base64,${"A".repeat(10_000)}` } },
            { type: "image_url", image_url: { url: "https://x/y.png", detail: "low" } }
          ]
        }
      ],
      tools: [{ type: "function", function: { name: "f", description: "Looks", parameters: {} } }]
    }
    const parts = promptParts(body)
    assert.deepStrictEqual(parts.texts, ["Be brief.", "What is this?", JSON.stringify(body.tools)])
    assert.strictEqual(parts.fixedTokens, 2 * 4 + 3 + 1445 + 85)
    assert.isBelow(promptTokenUpperBound(body), 2000)
    assert.strictEqual(promptParts({ input: [[1, 2, 3]], prompt: [4] }).fixedTokens, 3 + 4)
  })
})
