import { assert, describe, it } from "vitest"
import { GenerateContentGuard } from "#layers/inference/guards/generate-content.ts"
import type { EventGuard } from "#layers/inference/guards/guard.ts"
import { MessagesGuard } from "#layers/inference/guards/messages.ts"

/** Plays events through a guard whose policy masks `secret`; what leaves, and everything that was checked. */
const play = (guard: EventGuard, events: ReadonlyArray<Readonly<Record<string, unknown>>>) => {
  const sent: Array<string> = []
  const checked: Array<string> = []
  const release = (ready: ReturnType<EventGuard["flush"]>) => {
    for (const text of ready) {
      checked.push(text.checked)
      const event = text.release(text.checked.replaceAll("secret", "******"))
      if (event !== undefined) sent.push(event.toString())
    }
  }
  for (const event of events) {
    const type = event["type"]
    const name = typeof type === "string" ? `event: ${type}\n` : ""
    const { ready, rest } = guard.take(`${name}data: ${JSON.stringify(event)}`)
    release(ready)
    if (rest !== undefined) sent.push(rest.toString())
  }
  release(guard.flush())
  return { sent: sent.join(""), checked }
}

const delta = (index: number, more: object) => ({ type: "content_block_delta", index, delta: more })

describe("Anthropic's events", () => {
  it("keep their order, and no text leaves unchecked", () => {
    const { checked, sent } = play(new MessagesGuard(false), [
      { type: "message_start", message: { content: [] } },
      { type: "content_block_start", index: 0, content_block: { type: "thinking", thinking: "" } },
      delta(0, { type: "thinking_delta", thinking: "a sec" }),
      delta(0, { type: "thinking_delta", thinking: "ret thought" }),
      delta(0, { type: "signature_delta", signature: "sig" }),
      { type: "content_block_stop", index: 0 },
      { type: "content_block_start", index: 1, content_block: { type: "text", text: "" } },
      { type: "ping" },
      delta(1, { type: "text_delta", text: "One secret" }),
      delta(1, { type: "text_delta", text: " said. Two" }),
      delta(1, { type: "citations_delta", citation: { type: "char_location", cited_text: "cited secret" } }),
      { type: "content_block_stop", index: 1 },
      { type: "content_block_start", index: 2, content_block: { type: "tool_use", id: "t", name: "f", input: {} } },
      delta(2, { type: "input_json_delta", partial_json: '{"a":"sec' }),
      delta(2, { type: "input_json_delta", partial_json: 'ret"}' }),
      { type: "content_block_stop", index: 2 },
      { type: "message_delta", delta: { stop_reason: "tool_use" }, usage: { output_tokens: 3 } },
      { type: "message_stop" }
    ])
    assert.notInclude(sent, "secret")
    assert.include(checked, "a secret thought")
    assert.include(checked, '{"a":"secret"}')
    const order = [
      "a ****** thought",
      '"signature":"sig"',
      "One ****** said.",
      "cited ******",
      " Two",
      '"name":"f"',
      '******\\"}',
      "message_delta",
      "message_stop"
    ]
    const places = order.map((piece) => sent.indexOf(piece))
    assert.notInclude(places, -1)
    // A citation may overtake the sentence that it stands in.
    const others = places.filter((_place, at) => at !== 3 && at !== 4)
    assert.deepStrictEqual(
      others,
      others.toSorted((a, b) => a - b)
    )
  })

  it("wait for the whole answer where a guardrail judges only that", () => {
    const guard = new MessagesGuard(true)
    const event = `data: ${JSON.stringify(delta(0, { type: "text_delta", text: "One. Two. " }))}`
    assert.deepStrictEqual(guard.take(event).ready, [])
    assert.strictEqual(guard.take(`data: {"type":"content_block_stop","index":0}`).ready.length, 1)
  })
})

describe("Gemini's events", () => {
  const said = (parts: ReadonlyArray<object>, more: object = {}) => ({
    candidates: [{ content: { role: "model", parts }, index: 0, ...more }],
    responseId: "r"
  })

  it("keep calls behind the text before them, and no text leaves unchecked", () => {
    const { checked, sent } = play(new GenerateContentGuard(false), [
      said([{ text: "thinking of a secret", thought: true }]),
      said([{ text: "A secret" }]),
      said([{ text: " now" }, { functionCall: { name: "f", args: { a: "secret" } } }]),
      { ...said([{ text: "." }], { finishReason: "STOP" }), usageMetadata: { totalTokenCount: 3 } }
    ])
    assert.notInclude(sent, "secret")
    assert.isTrue(checked.some((text) => text.includes("A secret now")))
    assert.isBelow(sent.indexOf("A ****** now"), sent.indexOf('"functionCall"'))
    assert.isBelow(sent.indexOf('"functionCall"'), sent.indexOf('"finishReason":"STOP"'))
    assert.include(sent, '"totalTokenCount":3')
    assert.include(sent, '"args":{"a":"******"}')
  })
})
