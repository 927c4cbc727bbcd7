import { assert, it } from "@effect/vitest"
import { describe } from "vitest"
import { makeStreamWindows } from "#domain/stream-window.ts"

/** Runs a text through in deltas of a size; the check blocks by returning undefined. */
const stream = (text: string, size: number, check: (text: string) => string | undefined, options = {}) => {
  const windows = makeStreamWindows(options)
  let out = ""
  for (let at = 0; at <= text.length; at += size) {
    const window =
      at + size > text.length
        ? (windows.push(text.slice(at)) ?? windows.end())
        : windows.push(text.slice(at, at + size))
    for (let next = window; next !== undefined; next = at + size > text.length ? windows.end() : undefined) {
      const checked = check(next.checked)
      if (checked === undefined) return { out, blocked: true }
      out += windows.release(next, checked)
    }
  }
  return { out, blocked: false }
}

const prose =
  "First one. Is it a second? Yes! Dr. Smith has 3.14 apples at a.b@c.example. 日本語です。次の文。\n\nNew paragraph "

describe("stream windows", () => {
  it("gives out the same text whatever the chunks", () => {
    const text = prose.repeat(5) + "word ".repeat(200) + "x".repeat(500)
    for (const size of [1, 2, 3, 7, 50, 1000, 100_000]) {
      assert.strictEqual(
        stream(text, size, (checked) => checked, { maxWaiting: 100, overlap: 30 }).out,
        text,
        `${size}`
      )
    }
  })

  it("holds a sentence back until it is complete", () => {
    const windows = makeStreamWindows()
    assert.isUndefined(windows.push("Hello wor"))
    assert.isUndefined(windows.push("ld."))
    const window = windows.push(" Next")
    assert.strictEqual(window?.checked, "Hello world.")
    assert.strictEqual(windows.release(window!, window!.checked), "Hello world.")
  })

  it("never lets any of a blocked phrase out, wherever the text is cut", () => {
    const secret = "project orion"
    for (let offset = 0; offset < 120; offset++) {
      const text = "ab ".repeat(100).slice(0, 120 + offset) + " " + secret + " and more ".repeat(30)
      for (const size of [1, 5, 64]) {
        const result = stream(text, size, (checked) => (checked.includes(secret) ? undefined : checked), {
          maxWaiting: 100,
          overlap: 30
        })
        assert.isTrue(result.blocked)
        assert.notInclude(result.out, "project")
      }
    }
  })

  it("sees a phrase across the end of a sentence before it is complete", () => {
    const result = stream("It is stop. Now go on. And so on", 1, (checked) =>
      checked.includes("stop. Now") ? undefined : checked
    )
    assert.isTrue(result.blocked)
    assert.notInclude(result.out, "Now")
  })

  it("gives masked text out once", () => {
    const text = "Mail bob@example.com now. Or bob@example.com later. " + "fill ".repeat(60) + "bob@example.com end"
    for (const size of [1, 4, 33]) {
      const { out } = stream(text, size, (checked) => checked.replaceAll("bob@example.com", "<EMAIL>"), {
        maxWaiting: 100,
        overlap: 30
      })
      assert.strictEqual(out, text.replaceAll("bob@example.com", "<EMAIL>"), `${size}`)
    }
  })
})
