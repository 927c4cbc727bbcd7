import { assert, it } from "@effect/vitest"
import { describe } from "vitest"
import type { Json } from "#domain/json.ts"
import { answerTexts, promptTexts } from "#domain/prompt-texts.ts"

describe("texts of a body", () => {
  it("finds the language of every request shape and leaves media and ids out", () => {
    assert.deepStrictEqual(
      promptTexts({
        model: "gpt",
        user: "u",
        system: [{ type: "text", text: "s1" }],
        messages: [
          { role: "user", content: "m1" },
          {
            role: "user",
            content: [
              { type: "text", text: "m2" },
              { type: "image_url", image_url: { url: "data:x" } }
            ]
          },
          { role: "assistant", tool_calls: [{ id: "c", function: { name: "f", arguments: "m3" } }] },
          { role: "user", content: [{ type: "tool_use", id: "t", name: "n", input: { data: "m4", url: ["m5"] } }] },
          { role: "tool", tool_call_id: "c", content: "m6" }
        ]
      }).texts,
      ["s1", "m1", "m2", "m3", "m4", "m5", "m6"]
    )
    assert.deepStrictEqual(
      promptTexts({ contents: [{ role: "user", parts: [{ text: "g" }, { inlineData: { data: "x" } }] }] }).texts,
      ["g"]
    )
    assert.deepStrictEqual(promptTexts({ input: ["a", "b"], query: "q", documents: [{ text: "d" }] }).texts, [
      "a",
      "b",
      "q",
      "d"
    ])
    assert.deepStrictEqual(promptTexts({ tools: [{ function: { description: "hidden order" } }] }).texts, [
      "hidden order"
    ])
  })

  it("puts other texts into the same places without touching the body", () => {
    const body = {
      messages: [
        { role: "user", content: [{ type: "text", text: "a" }] },
        { role: "user", content: "b" }
      ]
    }
    const found = promptTexts(body)
    assert.deepStrictEqual(found.replaced(["x", "b"]), {
      messages: [
        { role: "user", content: [{ type: "text", text: "x" }] },
        { role: "user", content: "b" }
      ]
    })
    assert.strictEqual(body.messages[0]!.content[0] instanceof Object && "text" in body.messages[0]!.content[0], true)
    assert.strictEqual(found.replaced(["a", "b"]), body)
  })

  it("finds the language of every answer shape", () => {
    assert.deepStrictEqual(
      answerTexts({ choices: [{ index: 0, message: { role: "assistant", content: "c" } }] }).texts,
      ["c"]
    )
    assert.deepStrictEqual(answerTexts({ content: [{ type: "text", text: "m" }] }).texts, ["m"])
    assert.deepStrictEqual(
      answerTexts({ output: [{ type: "message", content: [{ type: "output_text", text: "r" }] }] }).texts,
      ["r"]
    )
    assert.deepStrictEqual(answerTexts({ candidates: [{ content: { parts: [{ text: "g" }] } }] }).texts, ["g"])
  })

  it("survives deep nesting", () => {
    let content: Json = "deep"
    for (let i = 0; i < 20_000; i++) content = [content]
    assert.deepStrictEqual(promptTexts({ messages: content }).texts, [])
  })
})
