import { Exit, Schema } from "effect"
import { assert, describe, it } from "vitest"
import { ChatCompletionRequest, EmbeddingRequest } from "#domain/requests.ts"
import { firstIssue } from "#http/schema-issues.ts"

const faultOf = (schema: Schema.Decoder<unknown>, body: unknown) => {
  const exit = Schema.decodeUnknownExit(schema)(body)
  if (Exit.isSuccess(exit)) return undefined
  const reason = exit.cause.reasons.find((one) => one._tag === "Fail")
  return reason === undefined ? assert.fail("no failure") : firstIssue(reason.error.issue, "body")
}

describe("firstIssue names the field at fault", () => {
  const user = { role: "user", content: "hi" }
  const cases: ReadonlyArray<readonly [string, unknown, string, string | undefined]> = [
    ["no object", [], "invalid_value", undefined],
    ["null", null, "invalid_value", undefined],
    ["nothing", {}, "missing_field", "messages"],
    ["empty messages", { messages: [] }, "invalid_value", "messages"],
    ["messages of another type", { messages: "hi" }, "invalid_value", "messages"],
    ["a message without a role", { messages: [user, {}] }, "missing_field", "messages.1.role"],
    ["a role of another type", { messages: [{ role: 1 }] }, "invalid_value", "messages.0.role"],
    ["a content of another type", { messages: [{ role: "user", content: 3 }] }, "invalid_value", "messages.0.content"],
    ["a limit of zero", { messages: [user], max_tokens: 0 }, "invalid_value", "max_tokens"],
    ["a name that is too long", { model: "x".repeat(257), messages: [user] }, "value_too_long", "model"],
    [
      "a nested option",
      { messages: [user], stream_options: { include_usage: 3 } },
      "invalid_value",
      "stream_options.include_usage"
    ]
  ]
  for (const [name, body, code, param] of cases) {
    it(name, () => {
      const fault = faultOf(ChatCompletionRequest, body)
      assert.deepStrictEqual([fault?.code, fault?.param], [code, param])
    })
  }

  it("accepts what it should", () => {
    assert.isUndefined(faultOf(ChatCompletionRequest, { messages: [user], temperature: null, extra: { deep: [1] } }))
    for (const input of ["a", ["a", "b"], [1, 2], [[1], [2]]]) {
      assert.isUndefined(faultOf(EmbeddingRequest, { input }))
    }
  })

  it("never quotes the value", () => {
    const fault = faultOf(ChatCompletionRequest, { messages: [{ role: { secret: "hunter2" } }] })
    assert.notInclude(fault?.message ?? "", "hunter2")
  })
})
