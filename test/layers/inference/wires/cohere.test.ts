import { assert, describe, it } from "@effect/vitest"
import type { JsonObject } from "#domain/json.ts"
import { sseEvent } from "#layers/inference/sse.ts"
import { cohereWire } from "#layers/inference/wires/cohere.ts"
import {
  assertCutsChangeNothing,
  bound,
  call,
  encoded,
  goldens,
  play,
  refusal,
  run,
  target
} from "#test/layers/inference/wires/golden.ts"

const wire = (more = {}) => bound(cohereWire, target({ upstreamModel: "command-a", provider: "cohere", ...more }))

const hello = { messages: [{ role: "user", content: "Hi" }] }

const chat = () => encoded(wire(), call({ body: hello, stream: true }))

const events = (...list: ReadonlyArray<JsonObject>) =>
  Buffer.from(list.map((one) => sseEvent(JSON.stringify(one), String(one["type"]))).join(""))

const said = { type: "content-delta", index: 0, delta: { message: { content: { text: "Half" } } } }
const end = (reason: string) => ({ type: "message-end", delta: { finish_reason: reason } })

describe("the Cohere wire", () => {
  for (const golden of goldens("cohere")) {
    it(`plays ${golden.name}`, () => play(cohereWire, golden, "https://api.cohere.com"))
  }

  it("refuses what it cannot carry, and drops it where the model says so", () => {
    const tools = [{ type: "function", function: { name: "f" } }]
    const refused: ReadonlyArray<readonly [body: JsonObject, param: string]> = [
      [{ n: 2 }, "n"],
      [{ logprobs: true }, "logprobs"],
      [{ tools, parallel_tool_calls: false }, "parallel_tool_calls"],
      [{ prediction: { type: "content", content: "x" } }, "prediction"]
    ]
    for (const [body, param] of refused) {
      assert.strictEqual(refusal(wire(), body), `unsupported_parameter ${param}`)
      assert.isUndefined(refusal(wire({ dropParams: true }), body))
    }
    const file = { type: "file", file: { file_data: "data:application/pdf;base64,AA==" } }
    const at = refusal(wire(), { messages: [{ role: "user", content: [file] }] })
    assert.strictEqual(at, "unsupported_parameter messages.0.content.0")
    const nobody = { tools, tool_choice: { type: "function", function: { name: "g" } } }
    assert.strictEqual(refusal(wire(), nobody), "unsupported_parameter tool_choice")
  })

  it("checks what is to be ranked", () => {
    const asked = (body: JsonObject) => {
      const exchange = wire().encode(call({ operation: "rerank", body }))
      return "param" in exchange ? exchange.param : undefined
    }
    assert.strictEqual(asked({ documents: ["a"] }), "query")
    assert.strictEqual(asked({ query: "q", documents: [] }), "documents")
    assert.strictEqual(asked({ query: "q", documents: [1] }), "documents")
    assert.strictEqual(asked({ query: "q", documents: ["a"], rank_fields: ["x"] }), "rank_fields")
    assert.isUndefined(asked({ query: "q", documents: ["a"], rank_fields: null }))
    const exchange = encoded(wire(), call({ operation: "rerank", body: { query: "q", documents: ["a"] } }))
    const odd = Buffer.from('{"results":[{"index":7,"relevance_score":1}]}')
    assert.isTrue("_tag" in exchange.decode({ status: 200, headers: {}, body: odd }))
  })

  it("judges Cohere's failures", () => {
    const judge = (status: number, message: string) =>
      wire().classify({ status, headers: {}, body: Buffer.from(JSON.stringify({ message })) })
    assert.strictEqual(judge(498, "invalid token").remedy, "next")
    assert.strictEqual(judge(422, "nope").error.code, "invalid_conversation")
    assert.strictEqual(judge(400, "too many tokens: size limit exceeded").error.code, "context_length_exceeded")
    assert.strictEqual(judge(429, "slow").error.status, 429)
  })

  it("ends a broken stream with its problem", () => {
    const cut = assertCutsChangeNothing(chat(), events(said))
    assert.strictEqual(cut.problem?.error.status, 502)
    assert.include(cut.out.toString(), "Half")
    assert.isUndefined(cut.decoder.usage())
    assert.strictEqual(run(chat(), [events(said, end("ERROR"))]).problem?.remedy, "retry")
    assert.strictEqual(run(chat(), [events(end("ERROR_TOXIC"))]).problem, undefined)
    assert.strictEqual(run(chat(), [Buffer.from('data: {"message":"internal"}\n\n')]).problem?.error.status, 502)
    const stray = {
      type: "tool-call-delta",
      index: 0,
      delta: { message: { tool_calls: { function: { arguments: "1" } } } }
    }
    assert.strictEqual(run(chat(), [events(stray)]).problem?.error.status, 502)
  })

  it("takes no answer for one that is none", () => {
    const exchange = encoded(wire(), call({ body: hello }))
    for (const body of [
      "[]",
      "nonsense",
      "{}",
      '{"message":{"tool_calls":[{}]}}',
      '{"message":{},"finish_reason":"ERROR"}'
    ]) {
      assert.isTrue("_tag" in exchange.decode({ status: 200, headers: {}, body: Buffer.from(body) }), body)
    }
  })
})
