import { assert, describe, it } from "vitest"
import { InvalidRequest } from "#domain/errors.ts"
import { inBothShapes } from "#domain/generate-content/answer.ts"
import { chatOfGenerateContent } from "#domain/generate-content/request.ts"
import { GenerateContentEvents } from "#domain/generate-content/stream.ts"
import type { JsonObject } from "#domain/json.ts"

const text = (said: string) => [{ role: "user", parts: [{ text: said }] }]

const chatOf = (body: JsonObject, stream = false): JsonObject => {
  const chat = chatOfGenerateContent(body, "m", stream)
  return chat instanceof InvalidRequest ? assert.fail(chat.message) : chat
}

const refused = (body: JsonObject): string => {
  const chat = chatOfGenerateContent(body, "m", false)
  return chat instanceof InvalidRequest ? `${chat.code} ${chat.param}` : "carried"
}

describe("a generateContent request", () => {
  it("becomes a chat request", () => {
    const chat = chatOf(
      {
        systemInstruction: { parts: [{ text: "Be brief." }] },
        contents: [
          { parts: [{ text: "What is this?" }, { inlineData: { mimeType: "image/png", data: "AA==" } }] },
          {
            role: "model",
            parts: [{ text: "hm", thought: true }, { functionCall: { name: "look", args: { at: 1 } } }]
          },
          { role: "user", parts: [{ functionResponse: { name: "look", response: { seen: "cat" } } }] }
        ],
        tools: [{ functionDeclarations: [{ name: "look", parameters: { type: "OBJECT", nullable: true } }] }],
        toolConfig: { functionCallingConfig: { mode: "ANY", allowedFunctionNames: ["look"] } },
        generationConfig: { maxOutputTokens: 5, topP: 0.5, stopSequences: ["x"], thinkingConfig: { thinkingBudget: 0 } }
      },
      true
    )
    assert.deepStrictEqual(chat, {
      model: "m",
      messages: [
        { role: "system", content: "Be brief." },
        {
          role: "user",
          content: [
            { type: "text", text: "What is this?" },
            { type: "image_url", image_url: { url: "data:image/png;base64,AA==" } }
          ]
        },
        {
          role: "assistant",
          content: null,
          tool_calls: [{ id: "call_0", type: "function", function: { name: "look", arguments: '{"at":1}' } }]
        },
        { role: "tool", tool_call_id: "call_0", content: '{"seen":"cat"}' }
      ],
      max_tokens: 5,
      top_p: 0.5,
      stop: ["x"],
      reasoning_effort: "none",
      tools: [{ type: "function", function: { name: "look", parameters: { type: ["object", "null"] } } }],
      tool_choice: { type: "function", function: { name: "look" } },
      stream: true
    })
  })

  it("takes snake case, bare parts and two calls of one name in their order", () => {
    assert.deepStrictEqual(chatOf({ contents: [{ text: "Hi" }], generation_config: { max_output_tokens: 3 } }), {
      model: "m",
      messages: [{ role: "user", content: "Hi" }],
      max_tokens: 3
    })
    const called = { functionCall: { name: "f", args: {} } }
    const answered = (n: number) => ({ functionResponse: { name: "f", response: { n } } })
    const { messages } = chatOf({
      contents: [
        { role: "model", parts: [called, called] },
        { role: "user", parts: [answered(1), answered(2)] }
      ]
    })
    assert.deepStrictEqual((messages as ReadonlyArray<JsonObject>).slice(1), [
      { role: "tool", tool_call_id: "call_0", content: '{"n":1}' },
      { role: "tool", tool_call_id: "call_1", content: '{"n":2}' }
    ])
  })

  it("names what it cannot carry", () => {
    const contents = text("Hi")
    assert.strictEqual(refused({ contents, cachedContent: "c" }), "unsupported_parameter cachedContent")
    assert.strictEqual(refused({ contents, safetySettings: [{}] }), "unsupported_parameter safetySettings")
    assert.strictEqual(refused({ contents, safetySettings: [] }), "carried")
    assert.strictEqual(refused({ contents, tools: [{ googleSearch: {} }] }), "unsupported_parameter tools.0")
    assert.strictEqual(
      refused({ contents, generationConfig: { responseModalities: ["IMAGE"] } }),
      "unsupported_parameter generationConfig.responseModalities"
    )
    assert.strictEqual(
      refused({ contents: [{ role: "user", parts: [{ functionResponse: { name: "f" } }] }] }),
      "invalid_conversation contents.0.parts.0.functionResponse"
    )
  })
})

describe("an answer", () => {
  const usage = {
    prompt_tokens: 9,
    completion_tokens: 7,
    total_tokens: 16,
    prompt_tokens_details: { cached_tokens: 4 },
    completion_tokens_details: { reasoning_tokens: 5 }
  }

  it("has both shapes whichever it came in", () => {
    const call = { id: "c", type: "function", function: { name: "f", arguments: '{"a":1}' } }
    const message = { role: "assistant", content: null, reasoning_content: "hm", tool_calls: [call] }
    const chat = { id: "x", object: "chat.completion", created: 1, model: "up", usage }
    const both = inBothShapes({ ...chat, choices: [{ index: 0, message, finish_reason: "tool_calls" }] }, "m", "r", 1)
    assert.deepStrictEqual(both["candidates"], [
      {
        content: {
          role: "model",
          parts: [{ text: "hm", thought: true }, { functionCall: { id: "c", name: "f", args: { a: 1 } } }]
        },
        finishReason: "STOP",
        index: 0
      }
    ])
    assert.deepStrictEqual(both["usageMetadata"], {
      promptTokenCount: 9,
      candidatesTokenCount: 2,
      thoughtsTokenCount: 5,
      cachedContentTokenCount: 4,
      totalTokenCount: 16
    })
    const { choices: _, object: __, ...native } = both
    const back = inBothShapes(native, "m", "r", 2)
    assert.deepStrictEqual(back["choices"], [{ index: 0, message, finish_reason: "tool_calls" }])
    assert.deepStrictEqual(back["usage"], usage)
  })
})

describe("the events", () => {
  const chunk = (delta: JsonObject, finish: string | null = null): JsonObject => ({
    id: "x",
    model: "up",
    choices: [{ index: 0, delta, finish_reason: finish }]
  })

  it("hold tool calls until they are whole and the end until the usage is known", () => {
    const events = new GenerateContentEvents()
    const call = (more: JsonObject) => chunk({ tool_calls: [{ index: 0, ...more }] })
    assert.strictEqual(events.take(chunk({ role: "assistant", content: "" })).length, 0)
    assert.strictEqual(events.take(chunk({ content: "Hi" })).length, 1)
    assert.strictEqual(events.take(call({ id: "c", function: { name: "f", arguments: '{"a"' } })).length, 0)
    assert.strictEqual(events.take(call({ function: { arguments: ":1}" } })).length, 0)
    assert.strictEqual(events.take(chunk({}, "tool_calls")).length, 0)
    const usage = { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 }
    assert.deepStrictEqual(events.take({ id: "x", model: "up", choices: [], usage }), [
      {
        candidates: [
          {
            content: { role: "model", parts: [{ functionCall: { id: "c", name: "f", args: { a: 1 } } }] },
            finishReason: "STOP",
            index: 0
          }
        ],
        usageMetadata: { promptTokenCount: 1, candidatesTokenCount: 2, totalTokenCount: 3 },
        modelVersion: "up",
        responseId: "x"
      }
    ])
    assert.deepStrictEqual(events.end(), [])
  })

  it("end without usage too", () => {
    const events = new GenerateContentEvents()
    events.take(chunk({}, "length"))
    const [last] = events.end()
    assert.include(JSON.stringify(last), '"finishReason":"MAX_TOKENS"')
  })
})
