import { assert, describe, it } from "@effect/vitest"
import { instantText, parseInstant } from "#domain/instants.ts"

describe("instants", () => {
  it("reads ISO 8601, in UTC where nothing else is said", () => {
    const expected = Date.UTC(2026, 10, 21, 9, 30)
    for (const text of [
      "2026-11-21T09:30:00Z",
      "2026-11-21T09:30:00",
      "2026-11-21 09:30:00.000Z",
      "2026-11-21T09:30",
      "2026-11-21T10:30:00+01:00",
      "2026-11-21t09:30:00.000000000z"
    ]) {
      assert.strictEqual(parseInstant(text), expected, text)
    }
    assert.strictEqual(parseInstant("2024-02-29"), Date.UTC(2024, 1, 29))
    assert.strictEqual(instantText(expected), "2026-11-21T09:30:00.000Z")
  })

  it("reads nothing else", () => {
    for (const text of [
      "",
      "tomorrow",
      "1763717400",
      "2026-02-31",
      "2025-02-29",
      "2026-13-01",
      "2026-11-21T25:00:00Z",
      "2026-11-21T09:30:00+99:99",
      "21.11.2026"
    ]) {
      assert.isUndefined(parseInstant(text), text)
    }
  })
})
