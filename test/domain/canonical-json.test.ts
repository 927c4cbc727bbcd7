import { assert, describe, it } from "@effect/vitest"
import { canonicalJson } from "#domain/canonical-json.ts"
import type { Json } from "#domain/json.ts"

describe("canonicalJson", () => {
  it("writes the example of RFC 8785, section 3.2.2", () => {
    const value: Json = {
      numbers: [Number("333333333.33333329"), 1e30, 4.5, 2e-3, 0.000000000000000000000000001],
      string: '€$\u000f\nA\'B"\\\\"/',
      literals: [null, true, false]
    }
    assert.strictEqual(
      canonicalJson(value),
      '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],' +
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )
  })

  it("sorts names by UTF-16 code units (section 3.2.3)", () => {
    const names = ["€", "\r", "\ufb33", "1", "😀", "\u0080", "ö"]
    const text = canonicalJson(Object.fromEntries(names.map((name) => [name, 0])))
    assert.deepStrictEqual(
      [...text.matchAll(/"((?:[^"\\]|\\.)+)":/g)].map((match) => JSON.parse(`"${match[1]}"`)),
      ["\r", "1", "\u0080", "ö", "€", "😀", "\ufb33"]
    )
  })

  it("writes numbers as section 3.2.2.3 and appendix B ask", () => {
    const cases: ReadonlyArray<readonly [number, string]> = [
      [-0, "0"],
      [5e-324, "5e-324"],
      [-1.7976931348623157e308, "-1.7976931348623157e+308"],
      [9007199254740992, "9007199254740992"],
      [295147905179352830000, "295147905179352830000"],
      [1e21, "1e+21"],
      [9.999999999999997e22, "9.999999999999997e+22"],
      [0.000001, "0.000001"],
      [1e-7, "1e-7"]
    ]
    for (const [number, text] of cases) assert.strictEqual(canonicalJson(number), text)
  })

  it("is the same for every order of the same members", () => {
    assert.strictEqual(
      canonicalJson({ b: { d: 1, c: [2, { f: 3, e: 4 }] }, a: "" }),
      canonicalJson({ a: "", b: { c: [2, { e: 4, f: 3 }], d: 1 } })
    )
    assert.strictEqual(canonicalJson({}), "{}")
    assert.strictEqual(canonicalJson([]), "[]")
  })

  it("refuses what has no canonical text", () => {
    assert.throws(() => canonicalJson(Number.NaN), TypeError)
    assert.throws(() => canonicalJson([Number.POSITIVE_INFINITY]), TypeError)
    assert.throws(() => canonicalJson("\ud800"), TypeError)
    assert.throws(() => canonicalJson({ "\udead": 1 }), TypeError)
  })
})
