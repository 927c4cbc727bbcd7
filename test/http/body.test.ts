import { assert, describe, it } from "vitest"
import { maxDepth, nestsTooDeep } from "#http/body.ts"

describe("nestsTooDeep", () => {
  const nested = (depth: number) => "[".repeat(depth) + "]".repeat(depth)

  it("admits the limit and refuses one more", () => {
    assert.isFalse(nestsTooDeep(nested(maxDepth)))
    assert.isTrue(nestsTooDeep(nested(maxDepth + 1)))
  })

  it("counts depth, not brackets", () => {
    assert.isFalse(nestsTooDeep(`[${"{},".repeat(10_000)}{}]`))
  })

  it("does not count brackets in strings, however they are escaped", () => {
    assert.isFalse(nestsTooDeep(JSON.stringify(["[".repeat(500), '"[[[[\\"'.repeat(100), "\\"])))
    assert.isTrue(nestsTooDeep(`["\\\\",${nested(maxDepth)}]`))
  })

  it("takes a text that never closes its string", () => {
    assert.isFalse(nestsTooDeep(`"${"[".repeat(1_000)}`))
  })

  it("is quick on a large hostile text", () => {
    const started = performance.now()
    nestsTooDeep('["'.repeat(4_000_000))
    assert.isBelow(performance.now() - started, 2_000)
  })
})
