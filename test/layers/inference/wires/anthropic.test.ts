import { assert, describe, it } from "@effect/vitest"
import { Redacted, Schema } from "effect"
import { InvalidRequest, RateLimited, UpstreamFailed } from "#domain/errors.ts"
import { anthropicWire } from "#layers/inference/wires/anthropic.ts"
import { claudeGeneration } from "#layers/inference/wires/anthropic/models.ts"
import { sseEvent } from "#layers/inference/sse.ts"
import {
  assertCutsChangeNothing,
  bound,
  call,
  chunksOf,
  decoded,
  encoded,
  goldens,
  play,
  refusal,
  run,
  target,
  upstreamBytes
} from "#test/layers/inference/wires/golden.ts"

const wire = (model = "claude-sonnet-4-5", more = {}) =>
  bound(anthropicWire, target({ upstreamModel: model, provider: "anthropic", ...more }))

const hello = { messages: [{ role: "user", content: "Hi" }] }

const chat = (body = {}, more = {}) => encoded(wire(), call({ body: { ...hello, ...body }, ...more }))

const sent = (body: object, model?: string) =>
  JSON.parse(String(encoded(wire(model), call({ body: { ...hello, ...body } })).request.body)) as Record<
    string,
    unknown
  >

const events = (...list: ReadonlyArray<object>) =>
  Buffer.from(list.map((one) => sseEvent(JSON.stringify(one), (one as { type: string }).type)).join(""))

const start = { type: "message_start", message: { model: "m", usage: { input_tokens: 10, output_tokens: 1 } } }
const block = { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } }
const text = (said: string) => ({ type: "content_block_delta", index: 0, delta: { type: "text_delta", text: said } })
const failure = (type: string, message: string) => ({ type: "error", error: { type, message } })

describe("the Anthropic wire", () => {
  for (const golden of goldens("anthropic")) {
    it(`plays ${golden.name}`, () => play(anthropicWire, golden, "https://api.anthropic.com"))
  }

  it("passes native answers on byte for byte", () => {
    const exchange = encoded(wire(), call({ operation: "messages", body: hello }))
    const body = Buffer.from(
      '{ "type":"message", "content":[],\n "usage":{"output_tokens":1, "input_tokens":2}, "x":1.0 }'
    )
    const answer = exchange.decode({ status: 200, headers: { "content-type": "application/json" }, body })
    assert.isTrue("body" in answer && answer.body.equals(body))
    const golden = goldens("anthropic").find((one) => one.name === "messages-stream")!
    const stream = encoded(wire(), call({ operation: "messages", body: golden.body, stream: true }))
    const crlf = Buffer.from(upstreamBytes("anthropic", golden).toString().replaceAll("\n", "\r\n"))
    assert.strictEqual(assertCutsChangeNothing(stream, crlf).out.toString(), crlf.toString())
  })

  it("forwards the client's beta headers on native calls alone", () => {
    const headers = { "anthropic-beta": "a,b", "x-api-key": "sk-of-the-client", cookie: "c" }
    const native = encoded(wire(), call({ operation: "count_tokens", body: hello, headers })).request.headers
    assert.strictEqual(native["anthropic-beta"], "a,b")
    assert.strictEqual(native["x-api-key"], "key-of-the-deployment")
    assert.isUndefined(native["cookie"])
    assert.isUndefined(encoded(wire(), call({ body: hello, headers })).request.headers["anthropic-beta"])
  })

  it("refuses what it cannot carry, and drops it where the model says so", () => {
    const refused: ReadonlyArray<readonly [body: object, param: string]> = [
      [{ n: 2 }, "n"],
      [{ seed: 1 }, "seed"],
      [{ logit_bias: { "50256": -100 } }, "logit_bias"],
      [{ logprobs: true }, "logprobs"],
      [{ presence_penalty: 0.5 }, "presence_penalty"],
      [{ something_new: 1 }, "something_new"],
      [{ temperature: 1.5 }, "temperature"],
      [{ service_tier: "flex" }, "service_tier"],
      [{ reasoning_effort: "high", temperature: 0.2, max_tokens: 9_000 }, "temperature"],
      [{ reasoning_effort: "low", max_tokens: 500 }, "reasoning_effort"],
      [
        { response_format: { type: "json_object" }, tools: [{ type: "function", function: { name: "f" } }] },
        "response_format"
      ]
    ]
    for (const [body, param] of refused) {
      assert.strictEqual(refusal(wire(), { ...body }), `unsupported_parameter ${param}`)
      assert.isUndefined(refusal(wire("claude-sonnet-4-5", { dropParams: true }), { ...body }))
    }
    assert.strictEqual(refusal(wire("claude-opus-5"), { temperature: 0.5 }), "unsupported_parameter temperature")
    assert.strictEqual(
      refusal(wire("claude-3-opus-20240229"), { reasoning_effort: "low" }),
      "unsupported_parameter reasoning_effort"
    )
    const neutral = { n: 1, logprobs: null, presence_penalty: 0, logit_bias: {}, store: false, top_p: null, seed: null }
    assert.isUndefined(refusal(wire(), neutral))
  })

  it("names the place in the conversation that cannot be carried", () => {
    const at = (message: object) =>
      refusal(wire("claude-sonnet-4-5", { dropParams: true }), { messages: [message as never] })
    const audio = { type: "input_audio", input_audio: { data: "AA==", format: "wav" } }
    const link = (url: string) => ({ role: "user", content: [{ type: "image_url", image_url: { url } }] })
    assert.strictEqual(at({ role: "user", content: [audio] }), "unsupported_parameter messages.0.content.0")
    assert.strictEqual(
      at({ role: "user", content: [{ type: "video" }] }),
      "unsupported_parameter messages.0.content.0.type"
    )
    assert.strictEqual(
      at(link("http://pictures.test/a.png")),
      "unsupported_parameter messages.0.content.0.image_url.url"
    )
    assert.strictEqual(
      at(link("data:image/tiff;base64,AA==")),
      "invalid_conversation messages.0.content.0.image_url.url"
    )
    assert.strictEqual(at(link("data:image/png,raw")), "invalid_conversation messages.0.content.0.image_url.url")
    assert.strictEqual(at({ role: "tool", content: "x" }), "invalid_conversation messages.0.tool_call_id")
    assert.strictEqual(at({ role: "narrator", content: "x" }), "invalid_conversation messages.0.role")
    assert.strictEqual(at({ role: "system", content: "x" }), "invalid_conversation messages")
    const odd = { role: "assistant", tool_calls: [{ id: "a", function: { name: "f", arguments: "{" } }] }
    assert.strictEqual(at(odd), "invalid_conversation messages.0.tool_calls.0.function.arguments")
    const tools = Array.from({ length: 2_000 }, () => ({ type: "function", function: { name: "f" } }))
    assert.strictEqual(refusal(wire(), { tools }), "unsupported_parameter tools")
  })

  it("chooses tools and thinking as the client did", () => {
    const tools = [{ type: "function", function: { name: "f" } }]
    assert.deepStrictEqual(sent({ tools, tool_choice: "none" })["tool_choice"], { type: "none" })
    assert.deepStrictEqual(sent({ tools, tool_choice: "auto" })["tool_choice"], { type: "auto" })
    assert.deepStrictEqual(sent({ tools, tool_choice: { type: "function", function: { name: "f" } } })["tool_choice"], {
      type: "tool",
      name: "f"
    })
    assert.deepStrictEqual(sent({ tools, parallel_tool_calls: false })["tool_choice"], {
      type: "auto",
      disable_parallel_tool_use: true
    })
    assert.isUndefined(sent({ tool_choice: "auto" })["tool_choice"])
    assert.isUndefined(sent({ reasoning_effort: "none" })["thinking"])
    assert.deepStrictEqual(sent({ thinking: { type: "enabled", budget_tokens: 2_000 } })["thinking"], {
      type: "enabled",
      budget_tokens: 2_000
    })
    assert.deepStrictEqual(sent({ reasoning_effort: "high", max_tokens: 3_000 })["thinking"], {
      type: "enabled",
      budget_tokens: 2_999
    })
    assert.strictEqual(sent({ service_tier: "default" })["service_tier"], "standard_only")
  })

  it("reads the generation out of a model's name", () => {
    const named: ReadonlyArray<readonly [model: string, generation: number]> = [
      ["claude-3-opus-20240229", 3],
      ["claude-3-7-sonnet-latest", 3.7],
      ["claude-sonnet-4-20250514", 4],
      ["claude-opus-4-1", 4.1],
      ["us.anthropic.claude-haiku-4-5-20251001-v1:0", 4.5],
      ["anthropic.claude-opus-4-6-v1", 4.6],
      ["claude-opus-5", 5],
      ["claude-fable-5-1", 5.1],
      ["claude-mythos-preview", Number.POSITIVE_INFINITY],
      ["prod-1-deployment", Number.POSITIVE_INFINITY]
    ]
    for (const [model, generation] of named) assert.strictEqual(claudeGeneration(model), generation, model)
  })

  it("keeps the upstream's wording for native clients, not its credentials", () => {
    const native = encoded(wire(), call({ operation: "messages", body: hello }))
    const body = (type: string, message: string) => Buffer.from(JSON.stringify(failure(type, message)))
    const limit = native.classify!({
      status: 429,
      headers: { "retry-after": "7" },
      body: body("rate_limit_error", "This would exceed 50,000 input tokens per minute")
    })
    assert.instanceOf(limit.error, RateLimited)
    assert.strictEqual(limit.error.message, "This would exceed 50,000 input tokens per minute")
    assert.strictEqual(limit.error.retryAfter, 7)
    const overloaded = native.classify!({ status: 529, headers: {}, body: body("overloaded_error", "Overloaded") })
    assert.instanceOf(overloaded.error, UpstreamFailed)
    assert.strictEqual(overloaded.error.message, "Overloaded")
    assert.strictEqual(overloaded.remedy, "retry")
    const key = native.classify!({ status: 401, headers: {}, body: body("authentication_error", "invalid x-api-key") })
    assert.notInclude(key.error.message, "x-api-key")
    const echo = native.classify!({ status: 500, headers: {}, body: body("api_error", "bad key sk-ant-REDACTED") })
    assert.notInclude(echo.error.message, "sk-ant")
    const own = native.classify!({ status: 500, headers: {}, body: body("api_error", "key-of-the-deployment failed") })
    assert.strictEqual(own.error.message, "[redacted] failed")
  })

  it("judges refusals and failures", () => {
    const judge = (status: number, type: string, message: string) =>
      wire().classify({ status, headers: {}, body: Buffer.from(JSON.stringify(failure(type, message))) })
    const long = judge(400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum")
    assert.instanceOf(long.error, InvalidRequest)
    assert.strictEqual(long.error.code, "context_length_exceeded")
    assert.strictEqual(long.remedy, "none")
    assert.strictEqual(judge(529, "overloaded_error", "Overloaded").remedy, "retry")
    assert.strictEqual(judge(404, "not_found_error", "model: claude-x").error.code, "unsupported_model")
  })

  it("says nothing before the first content, so that an early error can be tried elsewhere", () => {
    for (const operation of ["chat", "messages"] as const) {
      const decoder = encoded(wire(), call({ operation, body: hello, stream: true })).openStream({})
      assert.isUndefined(decoder.feed(events(start, { type: "ping" })))
      assert.strictEqual(decoder.events, 1)
      assert.isUndefined(decoder.feed(events(failure("overloaded_error", "Overloaded"))))
      assert.strictEqual(decoder.problem?.error.status, 502)
      assert.strictEqual(decoder.problem?.remedy, "retry")
    }
  })

  it("ends a broken stream with its problem, and tells what was generated", () => {
    for (const operation of ["chat", "messages"] as const) {
      const exchange = encoded(wire(), call({ operation, body: hello, stream: true }))
      const said = events(start, block, text("Twelve characters, or so."))
      const cut = assertCutsChangeNothing(exchange, said)
      assert.strictEqual(cut.problem?.error.status, 502)
      assert.include(cut.out.toString(), "Twelve")
      assert.deepInclude(cut.decoder.usage(), { input: 10, output: 7, estimated: true })
      const failed = run(exchange, [Buffer.concat([said, events(failure("invalid_request_error", "no"))])])
      assert.strictEqual(failed.problem?.error.status, 400)
      assert.include(failed.out.toString(), "Twelve")
      const odd = run(exchange, [said, Buffer.from("event: content_block_delta\ndata: {oops\n\n")])
      assert.strictEqual(odd.problem?.error.status, 502)
    }
    const stray = run(chat({}, { stream: true }), [events(start, block, { ...text("x"), index: 4 })])
    assert.strictEqual(stray.problem?.error.status, 502)
  })

  it.prop(
    "says what the upstream said, whatever it is and however it comes",
    [Schema.Array(Schema.String), Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 64 }))],
    ([pieces, step]) => {
      const deltas = [...pieces.map(text), { type: "content_block_stop", index: 0 }]
      const end = { type: "message_delta", delta: { stop_reason: "end_turn" }, usage: { output_tokens: 3 } }
      const bytes = events(start, block, ...deltas, end, { type: "message_stop" })
      const chunks: Array<Buffer> = []
      for (let at = 0; at < bytes.length; at += step) chunks.push(bytes.subarray(at, at + step))
      const { decoder, out } = run(chat({}, { stream: true }), chunks)
      assert.isTrue(decoder.ended)
      assert.strictEqual(decoder.text(), pieces.join(""))
      const said = (chunksOf(out) as ReadonlyArray<{ choices: ReadonlyArray<{ delta: { content?: string } }> }>).map(
        (chunk) => chunk.choices[0]?.delta.content ?? ""
      )
      assert.strictEqual(said.join(""), pieces.join(""))
    }
  )

  it("bounds an event without an end", () => {
    for (const operation of ["chat", "messages"] as const) {
      const decoder = encoded(wire(), call({ operation, body: hello, stream: true })).openStream({})
      const million = Buffer.alloc(1024 * 1024, 0x61)
      for (let index = 0; index < 40 && decoder.problem === undefined; index += 1) decoder.feed(million)
      assert.strictEqual(decoder.problem?.error.status, 502)
    }
  })

  it("takes no answer for one that is none", () => {
    for (const body of [
      "[]",
      "nonsense",
      '{"type":"error","error":{}}',
      '{"content":"text"}',
      '{"content":[{"type":"tool_use"}]}'
    ]) {
      const answer = chat().decode({ status: 200, headers: {}, body: Buffer.from(body) })
      assert.isTrue("_tag" in answer, body)
    }
    const deep = `{"content":[{"type":"tool_use","id":"a","name":"f","input":${'{"a":'.repeat(20_000)}1${"}".repeat(20_000)}}]}`
    assert.doesNotThrow(() => chat().decode({ status: 200, headers: {}, body: Buffer.from(deep) }))
    const silent = decoded(chat(), { type: "message", content: [], stop_reason: "refusal" })
    assert.include(silent.body.toString(), '"finish_reason":"content_filter"')
    assert.include(silent.body.toString(), '"content":null')
    assert.isUndefined(silent.usage)
  })

  it("finds its base and its key", () => {
    const at = (apiBase: string) =>
      encoded(wire("m", { apiBase }), call({ operation: "messages", body: hello })).request.path
    assert.strictEqual(at("https://proxy.test/v1"), "/v1/messages")
    assert.strictEqual(at("https://proxy.test/team/anthropic"), "/team/anthropic/v1/messages")
    assert.isString(anthropicWire.bind(target({ upstreamModel: "m", apiBase: "" })))
    assert.isString(anthropicWire.bind(target({ upstreamModel: "m", apiBase: "ftp://a.test" })))
    const bearer = wire("m", { apiKeyHeader: "Authorization", apiKey: Redacted.make("t") })
    assert.strictEqual(encoded(bearer, call({ body: hello })).request.headers["authorization"], "Bearer t")
  })
})
