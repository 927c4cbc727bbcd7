import { assert, describe, it } from "@effect/vitest"
import { InvalidRequest, RateLimited } from "#domain/errors.ts"
import type { JsonObject } from "#domain/json.ts"
import { geminiWire } from "#layers/inference/wires/gemini.ts"
import { geminiGeneration } from "#layers/inference/wires/gemini/encode.ts"
import {
  assertCutsChangeNothing,
  bound,
  call,
  decoded,
  encoded,
  goldens,
  play,
  refusal,
  run,
  target
} from "#test/layers/inference/wires/golden.ts"

const wire = (model = "gemini-2.5-flash", more = {}) =>
  bound(geminiWire, target({ upstreamModel: model, provider: "gemini", ...more }))

const hello = { messages: [{ role: "user", content: "Hi" }] }

const chat = (more = {}) => encoded(wire(), call({ body: hello, ...more }))

const event = (data: object) => Buffer.from(`data: ${JSON.stringify(data)}\r\n\r\n`)

const said = (text: string, more: object = {}) => ({ candidates: [{ content: { parts: [{ text }] }, ...more }] })

const thinking = (model: string, effort: string) => {
  const body = { ...hello, reasoning_effort: effort }
  const sent = JSON.parse(String(encoded(wire(model), call({ body })).request.body)) as JsonObject
  return (sent["generationConfig"] as JsonObject | undefined)?.["thinkingConfig"]
}

describe("the Gemini wire", () => {
  for (const golden of goldens("gemini")) {
    it(`plays ${golden.name}`, () => play(geminiWire, golden, "https://generativelanguage.googleapis.com"))
  }

  it("refuses what it cannot carry, and drops it where the model says so", () => {
    const tools = [{ type: "function", function: { name: "f" } }]
    const refused: ReadonlyArray<readonly [body: JsonObject, param: string]> = [
      [{ logit_bias: { "1": 1 } }, "logit_bias"],
      [{ logprobs: true }, "logprobs"],
      [{ modalities: ["text", "audio"] }, "modalities"],
      [{ tools, parallel_tool_calls: false }, "parallel_tool_calls"],
      [{ audio: { voice: "x" } }, "audio"]
    ]
    for (const [body, param] of refused) {
      assert.strictEqual(refusal(wire(), body), `unsupported_parameter ${param}`)
      assert.isUndefined(refusal(wire("gemini-2.5-flash", { dropParams: true }), body))
    }
    const effort = { reasoning_effort: "low" }
    assert.strictEqual(refusal(wire("gemini-2.0-flash"), effort), "unsupported_parameter reasoning_effort")
    assert.strictEqual(refusal(wire("gemma-3-27b-it"), effort), "unsupported_parameter reasoning_effort")
    const link = {
      messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: "https://a.test/x" } }] }]
    }
    assert.strictEqual(refusal(wire(), link), "unsupported_parameter messages.0.content.0.image_url.url")
    const stray = { messages: [{ role: "tool", tool_call_id: "nobody", content: "x" }] }
    assert.strictEqual(refusal(wire(), stray), "invalid_conversation messages.0.tool_call_id")
    const tokens = wire().encode(call({ operation: "embedding", body: { input: [[1, 2]] } }))
    assert.instanceOf(tokens, InvalidRequest)
  })

  it("thinks in budgets or levels, as the model's generation does", () => {
    assert.deepStrictEqual(thinking("gemini-2.5-pro", "high"), { thinkingBudget: 24_576, includeThoughts: true })
    assert.deepStrictEqual(thinking("gemini-2.5-flash", "none"), { thinkingBudget: 0 })
    assert.deepStrictEqual(thinking("gemini-3.5-flash", "medium"), { thinkingLevel: "MEDIUM", includeThoughts: true })
    assert.isUndefined(thinking("gemini-2.0-flash", "none"))
    assert.strictEqual(geminiGeneration("models/gemini-flash-latest"), Number.POSITIVE_INFINITY)
    assert.isUndefined(geminiGeneration("gemma-3"))
  })

  it("reads what Google says of keys, quotas and lengths", () => {
    const judge = (status: number, error: object) =>
      wire().classify({ status, headers: {}, body: Buffer.from(JSON.stringify({ error })) })
    const key = judge(400, {
      code: 400,
      message: "API key not valid.",
      status: "INVALID_ARGUMENT",
      details: [{ reason: "API_KEY_INVALID" }]
    })
    assert.strictEqual(key.error.status, 502)
    assert.strictEqual(key.remedy, "next")
    const details = [{ "@type": "type.googleapis.com/google.rpc.RetryInfo", retryDelay: "34.4s" }]
    const quota = judge(429, { code: 429, status: "RESOURCE_EXHAUSTED", message: "Quota", details })
    assert.strictEqual(quota.retryAfterMs, 34_400)
    assert.instanceOf(quota.error, RateLimited)
    assert.strictEqual(quota.error.retryAfter, 35)
    const long = judge(400, {
      code: 400,
      message: "The input token count (9) exceeds the maximum number of tokens allowed (8)."
    })
    assert.strictEqual(long.error.code, "context_length_exceeded")
    const listed = Buffer.from(JSON.stringify([{ error: { code: 503, message: "x", status: "UNAVAILABLE" } }]))
    assert.strictEqual(wire().classify({ status: 503, headers: {}, body: listed }).remedy, "retry")
  })

  it("ends a broken stream with its problem", () => {
    const bodies = { chat: hello, generate_content: { contents: [] } }
    for (const operation of ["chat", "generate_content"] as const) {
      const exchange = encoded(wire(), call({ operation, body: bodies[operation], stream: true }))
      const cut = assertCutsChangeNothing(
        exchange,
        event({ ...said("Half an answer."), usageMetadata: { promptTokenCount: 9 } })
      )
      assert.strictEqual(cut.problem?.error.status, 502)
      assert.include(cut.out.toString(), "Half an answer.")
      assert.deepInclude(cut.decoder.usage(), { input: 9, output: 4, estimated: true })
      const frame = { error: { code: 429, message: "Slow down", status: "RESOURCE_EXHAUSTED" } }
      assert.strictEqual(run(exchange, [event(frame)]).problem?.error.status, 429)
      assert.strictEqual(run(exchange, []).problem?.error.status, 502)
      const last = run(exchange, [
        Buffer.from(
          event(said("x", { finishReason: "STOP" }))
            .toString()
            .trimEnd()
        )
      ])
      assert.isTrue(last.decoder.ended)
    }
    const malformed = run(chat({ stream: true }), [event(said("", { finishReason: "MALFORMED_FUNCTION_CALL" }))])
    assert.strictEqual(malformed.problem?.remedy, "retry")
    const crowd = run(chat({ stream: true }), [event(said("x", { index: 4_000_000_000 }))])
    assert.strictEqual(crowd.problem?.error.status, 502)
  })

  it("ends a blocked stream as filtered", () => {
    const { decoder, out } = run(chat({ stream: true }), [event({ promptFeedback: { blockReason: "SAFETY" } })])
    assert.isTrue(decoder.ended)
    assert.include(out.toString(), '"finish_reason":"content_filter"')
  })

  it("answers vectors as base64 when asked to", () => {
    const body = { input: "x", encoding_format: "base64" }
    const answer = decoded(encoded(wire(), call({ operation: "embedding", body })), {
      embeddings: [{ values: [0.5, -2] }]
    })
    const { data } = JSON.parse(answer.body.toString()) as { data: ReadonlyArray<{ embedding: string }> }
    const bytes = Buffer.from(data[0]!.embedding, "base64")
    assert.deepStrictEqual([bytes.readFloatLE(0), bytes.readFloatLE(4)], [0.5, -2])
    assert.isUndefined(answer.usage)
    const short = encoded(wire(), call({ operation: "embedding", body: { input: ["a", "b"] } }))
    const missing = short.decode({ status: 200, headers: {}, body: Buffer.from('{"embeddings":[{"values":[1]}]}') })
    assert.isTrue("_tag" in missing)
  })

  it("takes no answer for one that is none", () => {
    for (const body of [
      "[]",
      "nonsense",
      "{}",
      '{"error":{"code":500}}',
      '{"candidates":[{"content":{"parts":[{"functionCall":{}}]}}]}'
    ]) {
      assert.isTrue("_tag" in chat().decode({ status: 200, headers: {}, body: Buffer.from(body) }), body)
    }
  })

  it("finds its base", () => {
    const at = (apiBase: string, model = "gemini-x") =>
      encoded(wire(model, { apiBase }), call({ body: hello })).request.path
    assert.strictEqual(at("https://proxy.test/v1"), "/v1/models/gemini-x:generateContent")
    assert.strictEqual(
      at("https://proxy.test/g/v1beta", "models/gemini-x"),
      "/g/v1beta/models/gemini-x:generateContent"
    )
    assert.isString(geminiWire.bind(target({ upstreamModel: "m", apiBase: "nowhere" })))
  })
})
