import { assert, describe, it } from "vitest"
import type { JsonObject } from "#domain/json.ts"
import { labelIn, type UdfCall, udfCall, type UdfItem, udfFunctions } from "#domain/udf.ts"

const item = (name: UdfItem["function"], args: JsonObject = {}, input = "Some text"): UdfItem => ({
  function: name,
  model: "m",
  input,
  args
})

const callOf = (of: UdfItem): UdfCall => {
  const call = udfCall(of)
  return typeof call === "string" ? assert.fail(call) : call
}

const said = (content: string): JsonObject => ({ choices: [{ message: { content } }] })

describe("the functions", () => {
  it("each make a call or say what they miss", () => {
    const args = { labels: ["a"], fields: ["x"], target_language: "German" }
    for (const name of udfFunctions) assert.strictEqual(callOf(item(name, args)).body["model"], "m", name)
    for (const name of ["ai_classify", "ai_extract", "ai_translate"] as const) {
      assert.include(udfCall(item(name)) as string, "'args.")
    }
  })

  it("hand the model's settings on and keep the input apart from the instructions", () => {
    const call = callOf(item("ai_complete", { system: "Be brief.", max_tokens: 5, anything: 1 }))
    assert.deepStrictEqual(call.body, {
      model: "m",
      messages: [
        { role: "system", content: "Be brief." },
        { role: "user", content: "Some text" }
      ],
      max_tokens: 5
    })
  })

  it("read labels leniently and nothing else", () => {
    const labels = ["Spam", "Not spam", "other"]
    assert.strictEqual(labelIn("**Spam**.", labels), "Spam")
    assert.strictEqual(labelIn("It is other.", labels), "other")
    assert.isUndefined(labelIn("This is not spam, other", labels))
    assert.isUndefined(labelIn("I do not know", labels))
    assert.strictEqual(callOf(item("ai_sentiment")).output(said("Negative")), "negative")
  })

  it("take only JSON for an extraction, with or without fences", () => {
    const { output } = callOf(item("ai_extract", { fields: ["a"] }))
    assert.strictEqual(output(said('```json\n{ "a": 1 }\n```')), '{"a":1}')
    assert.isUndefined(output(said("a is 1")))
  })

  it("let no recognised personal data out when redacting, nor back in", () => {
    const call = callOf(item("ai_redact", {}, "Mail ada@example.org"))
    assert.notInclude(JSON.stringify(call.body), "ada@example.org")
    assert.strictEqual(call.output(said("Mail bob@example.org")), "Mail [EMAIL]")
  })

  it("give vectors as JSON", () => {
    assert.strictEqual(callOf(item("ai_embed")).output({ data: [{ embedding: [1, 0.5] }] }), "[1,0.5]")
    assert.isUndefined(callOf(item("ai_embed")).output({ data: [] }))
  })
})
