import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import { limitOf, parseBudgetDuration, Window, windowAt } from "#domain/limits.ts"

const hour = 3_600_000
/** Any moment of the years 1970 to 2100. */
const Moment = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: Date.UTC(2100, 0, 1) }))
const Calendar = Schema.Struct({
  unit: Schema.Literals(["s", "m", "h", "d", "mo"]),
  count: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 500 }))
})

describe("parseBudgetDuration", () => {
  it("reads every unit", () => {
    assert.deepStrictEqual(parseBudgetDuration("30s"), Window.Calendar({ unit: "s", count: 30 }))
    assert.deepStrictEqual(parseBudgetDuration("5m"), Window.Calendar({ unit: "m", count: 5 }))
    assert.deepStrictEqual(parseBudgetDuration("12h"), Window.Calendar({ unit: "h", count: 12 }))
    assert.deepStrictEqual(parseBudgetDuration("7d"), Window.Calendar({ unit: "d", count: 7 }))
    assert.deepStrictEqual(parseBudgetDuration("1mo"), Window.Calendar({ unit: "mo", count: 1 }))
  })

  it("refuses everything else", () => {
    for (const text of [
      "",
      "0s",
      "00d",
      "1",
      "d",
      "1.5h",
      "-1d",
      "1w",
      "1 d",
      "1D",
      "1mon",
      " 1d",
      "1d\n",
      "1234567s"
    ]) {
      assert.isUndefined(parseBudgetDuration(text), JSON.stringify(text))
    }
  })
})

describe("windowAt", () => {
  it.prop("holds its moment, and ends where the next one starts", [Calendar, Moment], ([calendar, now]) => {
    const window = Window.Calendar(calendar)
    const { end, start } = windowAt(window, now)
    assert.isAtMost(start, now)
    assert.isAbove(end, now)
    assert.deepStrictEqual(windowAt(window, start), { start, end })
    assert.deepStrictEqual(windowAt(window, end - 1), { start, end })
    assert.strictEqual(windowAt(window, end).start, end)
  })

  it("is aligned to UTC", () => {
    const now = Date.UTC(2026, 1, 17, 13, 45, 31, 250)
    const at = (text: string) => {
      const { end, start } = windowAt(parseBudgetDuration(text) ?? Window.Lifetime(), now)
      return [new Date(start).toISOString(), new Date(end).toISOString()]
    }
    assert.deepStrictEqual(at("30s"), ["2026-02-17T13:45:30.000Z", "2026-02-17T13:46:00.000Z"])
    assert.deepStrictEqual(at("12h"), ["2026-02-17T12:00:00.000Z", "2026-02-18T00:00:00.000Z"])
    assert.deepStrictEqual(at("1d"), ["2026-02-17T00:00:00.000Z", "2026-02-18T00:00:00.000Z"])
    assert.deepStrictEqual(at("1mo"), ["2026-02-01T00:00:00.000Z", "2026-03-01T00:00:00.000Z"])
    assert.deepStrictEqual(at("3mo"), ["2026-01-01T00:00:00.000Z", "2026-04-01T00:00:00.000Z"])
    assert.deepStrictEqual(at("12mo"), ["2026-01-01T00:00:00.000Z", "2027-01-01T00:00:00.000Z"])
  })

  it("knows leap years", () => {
    const { end, start } = windowAt(Window.Calendar({ unit: "mo", count: 1 }), Date.UTC(2028, 1, 29, 23, 59))
    assert.strictEqual(end - start, 29 * 24 * hour)
  })

  it("never ends a lifetime, and starts a minute with its first use", () => {
    assert.deepStrictEqual(windowAt(Window.Lifetime(), 5), { start: 0, end: Number.POSITIVE_INFINITY })
    assert.deepStrictEqual(windowAt(Window.Minute(), 61_234), { start: 61_234, end: 121_234 })
  })
})

describe("limitOf", () => {
  it("names the account after kind, owner and id", () => {
    const window = Window.Minute()
    assert.deepStrictEqual(limitOf("team", "t1", "requests", 5n, window), {
      account: "requests:team:t1",
      owner: "team",
      kind: "requests",
      limit: 5n,
      window
    })
  })
})
