import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import { dollarsNumber, dollarsText, nanosFromDollars, nanosFromPicos, picosFromDollars } from "#domain/money.ts"
import { costOf, noUsage, type Price, usageOf } from "#domain/usage.ts"

const Count = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 10_000_000 }))
/** Nano-dollars far beyond what a number holds exactly. */
const Amount = Schema.BigInt.check(Schema.isBetweenBigInt({ minimum: -(10n ** 24n), maximum: 10n ** 24n }))
/** Nano-dollars of up to eight million dollars. */
const Wire = Schema.BigInt.check(Schema.isBetweenBigInt({ minimum: 0n, maximum: 8n * 10n ** 15n }))
/** Pico-dollars per unit of up to a thousand dollars a million. */
const Rate = Schema.BigInt.check(Schema.isBetweenBigInt({ minimum: 0n, maximum: 10n ** 9n }))

describe("money", () => {
  it.prop("survives the decimal text, whatever its size", [Amount], ([nanos]) => {
    assert.strictEqual(nanosFromDollars(dollarsText(nanos)), nanos)
  })

  it.prop("survives the wire up to eight million dollars", [Wire], ([nanos]) => {
    assert.strictEqual(nanosFromDollars(dollarsNumber(nanos)), nanos)
    assert.strictEqual(nanosFromDollars(JSON.parse(JSON.stringify(dollarsNumber(nanos))) as number), nanos)
  })

  it("adds up where floating point does not", () => {
    const dime = nanosFromDollars(0.1) ?? 0n
    assert.strictEqual(dollarsNumber(dime + dime + dime), 0.3)
  })

  it("writes decimals without padding", () => {
    assert.strictEqual(dollarsText(0n), "0")
    assert.strictEqual(dollarsText(1n), "0.000000001")
    assert.strictEqual(dollarsText(-1_500_000_000n), "-1.5")
    assert.strictEqual(dollarsText(12_000_000_000n), "12")
  })

  it("reads what JSON and PostgreSQL write", () => {
    assert.strictEqual(nanosFromDollars(1e-7), 100n)
    assert.strictEqual(nanosFromDollars("2.5E+3"), 2_500_000_000_000n)
    assert.strictEqual(nanosFromDollars(" 12.340000000 "), 12_340_000_000n)
    assert.strictEqual(nanosFromDollars("-0.5"), -500_000_000n)
    assert.strictEqual(picosFromDollars(7.5e-8), 75_000n)
  })

  it("rounds what is too fine up, so that nothing is free that costs", () => {
    assert.strictEqual(nanosFromDollars("0.0000000001"), 1n)
    assert.strictEqual(picosFromDollars("1e-13"), 1n)
    assert.strictEqual(picosFromDollars("1e-999"), 1n)
    assert.strictEqual(nanosFromPicos(1n), 1n)
    assert.strictEqual(nanosFromPicos(1000n), 1n)
    assert.strictEqual(nanosFromPicos(1001n), 2n)
    assert.strictEqual(nanosFromPicos(0n), 0n)
  })

  it("refuses what is no amount", () => {
    for (const text of ["", " ", "abc", "1,5", "1.", ".5", "0x10", "1e", "1e99", "1 2", "--1", "Infinity", "NaN"]) {
      assert.isUndefined(nanosFromDollars(text), text)
    }
    assert.isUndefined(nanosFromDollars(Number.NaN))
    assert.isUndefined(nanosFromDollars(Number.POSITIVE_INFINITY))
  })
})

describe("costOf", () => {
  const free: Price = { input: 0n, output: 0n, cacheRead: 0n, cacheWrite: 0n, request: 0n, image: 0n, second: 0n }

  it.prop(
    "is the exact sum, rounded up once",
    [Count, Count, Count, Rate, Rate, Rate],
    ([input, output, cached, a, b, c]) => {
      const price = { ...free, input: a, output: b, cacheRead: c }
      const cost = costOf(price, usageOf({ input, output, cacheRead: cached }))
      const picos = BigInt(input) * a + BigInt(output) * b + BigInt(cached) * c
      assert.isTrue(cost * 1000n >= picos && cost * 1000n < picos + 1000n)
    }
  )

  it.prop("never costs less in parts than as a whole", [Count, Count, Rate], ([one, other, rate]) => {
    const price = { ...free, input: rate }
    const parts = costOf(price, usageOf({ input: one })) + costOf(price, usageOf({ input: other }))
    assert.isTrue(parts >= costOf(price, usageOf({ input: one + other })))
  })

  it("charges every bucket at its own price, and the request", () => {
    const price: Price = {
      input: 1_000n,
      output: 10_000n,
      cacheRead: 100n,
      cacheWrite: 2_000n,
      request: 5_000n,
      image: 1_000_000n,
      second: 6_000n
    }
    const usage = usageOf({
      input: 3,
      audioInput: 2,
      output: 4,
      reasoning: 5,
      audioOutput: 1,
      cacheRead: 10,
      cacheWrite: 7,
      images: 2,
      seconds: 1.5
    })
    // 5 + 100 + 1 + 14 + 5 + 2000 + 9 nano-dollars.
    assert.strictEqual(costOf(price, usage), 2134n)
    assert.strictEqual(costOf(price, noUsage), 5n)
    assert.strictEqual(costOf(free, usage), 0n)
  })
})
