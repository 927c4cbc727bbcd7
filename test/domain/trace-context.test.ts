import { assert, describe, it } from "vitest"
import { samplerNames, samplerOf } from "#domain/sampling.ts"
import { remoteParentOf, traceparentOf } from "#domain/trace-context.ts"

const traceId = "0af7651916cd43dd8448eb211c80319c"
const spanId = "b7ad6b7169203331"
const valid = `00-${traceId}-${spanId}-01`

describe("traceparent", () => {
  it("names a parent", () => {
    assert.deepStrictEqual(remoteParentOf(valid, undefined), {
      traceId,
      spanId,
      sampled: true,
      random: false,
      state: undefined
    })
    assert.include(remoteParentOf(`00-${traceId}-${spanId}-00`, undefined), { sampled: false, random: false })
    assert.include(remoteParentOf(`00-${traceId}-${spanId}-03`, undefined), { sampled: true, random: true })
  })

  it("of a later version is read as far as this one goes", () => {
    for (const later of [`cc-${traceId}-${spanId}-01`, `01-${traceId}-${spanId}-01-what-comes-after`]) {
      assert.include(remoteParentOf(later, undefined), { traceId, spanId, sampled: true })
    }
  })

  it("that is malformed names none", () => {
    const malformed = [
      undefined,
      "",
      "garbage",
      `${valid}-more`,
      `${valid}.`,
      `cc-${traceId}-${spanId}-01.more`,
      `ff-${traceId}-${spanId}-01`,
      `0-${traceId}-${spanId}-01`,
      `00-${traceId.toUpperCase()}-${spanId}-01`,
      `00-${traceId.slice(1)}-${spanId}-01`,
      `00-${traceId}0-${spanId}-01`,
      `00-${traceId}-${spanId.slice(1)}-01`,
      `00-${traceId}-${spanId}-1`,
      `00-${traceId}-${spanId}-0x`,
      `00-${"0".repeat(32)}-${spanId}-01`,
      `00-${traceId}-${"0".repeat(16)}-01`,
      // What Node makes of the header sent twice.
      `${valid}, ${valid}`,
      `01-${traceId}-${spanId}-01-${"x".repeat(1000)}`
    ]
    for (const one of malformed) assert.isUndefined(remoteParentOf(one, undefined), one)
  })

  it("is written as it is read", () => {
    for (const flags of ["00", "01", "02", "03"]) {
      const { random, sampled } = remoteParentOf(`00-${traceId}-${spanId}-${flags}`, undefined)!
      assert.strictEqual(traceparentOf(traceId, spanId, sampled, random), `00-${traceId}-${spanId}-${flags}`)
    }
  })
})

describe("tracestate", () => {
  const stateOf = (text: string) => remoteParentOf(valid, text)!.state

  it("is passed on as it came", () => {
    for (const state of ["rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "t@vendor=a b", "1a=x"]) {
      assert.strictEqual(stateOf(state), state)
    }
    assert.strictEqual(stateOf(" a=1 , ,b=2 "), "a=1,b=2")
  })

  it("that is malformed is left out, and the parent stands", () => {
    for (const state of ["", ",", "a", "A=1", "=1", "a=", "a=b=c", "a=1,b", "a=\u00e9", "x".repeat(100_000)]) {
      assert.isUndefined(stateOf(state), state.slice(0, 20))
    }
    assert.isUndefined(stateOf(Array.from({ length: 33 }, (_, i) => `k${i}=1`).join(",")))
  })

  it("loses its oldest members where it is too long", () => {
    const members = Array.from({ length: 10 }, (_, i) => `k${i}=${"v".repeat(97)}`)
    assert.strictEqual(stateOf(members.join(",")), members.slice(0, 5).join(","))
  })
})

describe("samplers", () => {
  const parent = (sampled: boolean) => remoteParentOf(`00-${traceId}-${spanId}-0${sampled ? 1 : 0}`, undefined)
  const low = `${"f".repeat(18)}${"0".repeat(13)}1`
  const high = `${"0".repeat(18)}${"f".repeat(14)}`

  it("decide by name, and the parent-based ones by the parent first", () => {
    const decisions = Object.fromEntries(
      samplerNames.map((name) => {
        const sampler = samplerOf(name, 0.5)
        return [name, [undefined, parent(true), parent(false)].map((one) => sampler(low, one))]
      })
    )
    assert.deepStrictEqual(decisions, {
      always_on: [true, true, true],
      always_off: [false, false, false],
      traceidratio: [false, false, false],
      parentbased_always_on: [true, true, false],
      parentbased_always_off: [false, true, false],
      parentbased_traceidratio: [false, true, false]
    })
  })

  it("take a ratio of the trace ids, always the same ones, and with a higher ratio all of those", () => {
    const ids = Array.from({ length: 10_000 }, () =>
      Array.from({ length: 32 }, () => Math.floor(Math.random() * 16).toString(16)).join("")
    )
    const taken = (ratio: number) => ids.filter((id) => samplerOf("traceidratio", ratio)(id, undefined))
    assert.approximately(taken(0.25).length, 2500, 250)
    const more = new Set(taken(0.5))
    assert.isTrue(taken(0.25).every((id) => more.has(id)))
    assert.deepStrictEqual(taken(0), [])
    assert.strictEqual(taken(1).length, ids.length)
    assert.isTrue(samplerOf("traceidratio", 0.5)(high, undefined))
  })
})
