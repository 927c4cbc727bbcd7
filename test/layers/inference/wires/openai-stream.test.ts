import { assert, describe, it } from "@effect/vitest"
import { completionTokens, promptTokens } from "#domain/usage.ts"
import { OpenAiStreamDecoder } from "#layers/inference/wires/openai-stream.ts"

const chunk = (delta: object, more: object = {}) =>
  JSON.stringify({
    id: "c",
    object: "chat.completion.chunk",
    choices: [{ index: 0, delta, finish_reason: null }],
    ...more
  })

const usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 }

const payloads = [
  chunk({ role: "assistant", content: "" }, { usage: null }),
  chunk({ content: 'Größe 東京 🚀 says "usage": {1} and "error": {2}' }, { usage: null }),
  chunk({ tool_calls: [{ index: 0, function: { name: "find", arguments: '{"error":{}}' } }] }, { usage: null }),
  JSON.stringify({ id: "c", choices: [{ index: 0, delta: {}, finish_reason: "stop" }], usage: null }),
  JSON.stringify({ id: "c", choices: [], usage })
]

const sse = (list: ReadonlyArray<string>, newline = "\n") =>
  Buffer.from(list.map((payload) => `data: ${payload}${newline}${newline}`).join(""))

const run = (chunks: ReadonlyArray<Buffer>, wantsUsage = false) => {
  const decoder = new OpenAiStreamDecoder(wantsUsage)
  const out: Array<Buffer> = []
  for (const bytes of chunks) {
    const ready = decoder.feed(bytes)
    if (ready !== undefined) out.push(ready)
  }
  const last = decoder.finish()
  return { decoder, out: Buffer.concat(last === undefined ? out : [...out, last]) }
}

describe("OpenAiStreamDecoder", () => {
  for (const newline of ["\n", "\r\n", "\r"]) {
    it(`answers the same bytes wherever they are cut (${JSON.stringify(newline)})`, () => {
      const whole = sse([...payloads, "[DONE]"], newline)
      const expected = sse(payloads.slice(0, 4), newline).toString().trimEnd()
      for (let at = 0; at <= whole.length; at += 1) {
        const { decoder, out } = run([whole.subarray(0, at), whole.subarray(at)])
        assert.strictEqual(out.toString().trimEnd(), expected, `cut at ${at}`)
        assert.isTrue(decoder.ended)
        assert.isUndefined(decoder.problem)
        assert.strictEqual(decoder.events, 5)
        assert.strictEqual(promptTokens(decoder.usage()!), 10)
        assert.include(decoder.text(), 'Größe 東京 🚀 says "usage"')
        assert.include(decoder.text(), 'find{"error":{}}')
      }
      const { out } = run([...whole].map((byte) => Buffer.from([byte])))
      assert.strictEqual(out.toString().trimEnd(), expected)
      assert.include(run([whole], true).out.toString(), '"prompt_tokens":10')
    })
  }

  it("passes a chunk of plain events on as the very same bytes", () => {
    const bytes = sse(payloads.slice(0, 3))
    assert.strictEqual(new OpenAiStreamDecoder(false).feed(bytes), bytes)
  })

  it("holds back what only opens the answer until there is content", () => {
    const opening = sse([JSON.stringify({ choices: [] }), payloads[0]!])
    const decoder = new OpenAiStreamDecoder(false)
    assert.isUndefined(decoder.feed(opening))
    assert.strictEqual(decoder.events, 2)
    const content = sse([payloads[1]!])
    assert.deepStrictEqual(decoder.feed(content), Buffer.concat([opening, content]))
    const failing = new OpenAiStreamDecoder(false)
    assert.isUndefined(failing.feed(opening))
    assert.isUndefined(failing.feed(sse([JSON.stringify({ error: { message: "The model broke." } })])))
    assert.isDefined(failing.problem)
    const empty = new OpenAiStreamDecoder(false)
    assert.deepStrictEqual(empty.feed(Buffer.concat([opening, sse(["[DONE]"])])), opening)
  })

  it("keeps usage that rides on a chunk with content", () => {
    const riding = JSON.stringify({ choices: [{ index: 0, delta: { content: "x" }, finish_reason: "stop" }], usage })
    const { decoder, out } = run([sse([riding, "[DONE]"])])
    assert.include(out.toString(), "prompt_tokens")
    assert.strictEqual(completionTokens(decoder.usage()!), 5)
  })

  it("counts no comment as progress and lets none begin the answer", () => {
    const decoder = new OpenAiStreamDecoder(false)
    assert.isUndefined(decoder.feed(Buffer.from(": keep-alive\n\n")))
    assert.isUndefined(decoder.feed(Buffer.from("event: ping\n\n")))
    assert.strictEqual(decoder.events, 0)
    decoder.feed(sse(payloads.slice(0, 1)))
    assert.strictEqual(decoder.events, 1)
    decoder.feed(Buffer.from(": keep-alive\n\n"))
    assert.strictEqual(decoder.events, 1)
  })

  it("reads error frames in their common forms", () => {
    const frames: ReadonlyArray<readonly [frame: string, status: number, remedy: string]> = [
      ['data: {"error":{"message":"secret inner state","type":"server_error"}}\n\n', 502, "retry"],
      ['data: {"error":{"message":"slow down","type":"rate_limit_error"}}\n\n', 429, "retry"],
      ['data: {"error":{"message":"overloaded","code":503}}\n\n', 502, "retry"],
      ['data: {"error":{"message":"too long","code":"context_length_exceeded"}}\n\n', 400, "none"],
      ['event: error\ndata: {"message":"boom"}\n\n', 502, "retry"],
      ['data: {"error":"boom"}\n\n', 502, "retry"]
    ]
    for (const [frame, status, remedy] of frames) {
      const { decoder, out } = run([Buffer.from(frame)])
      assert.strictEqual(decoder.problem?.error.status, status, frame)
      assert.strictEqual(decoder.problem?.remedy, remedy, frame)
      assert.notInclude(decoder.problem?.error.message ?? "", "inner state")
      assert.strictEqual(out.length, 0)
    }
  })

  it("takes a finished stream without [DONE], and no unfinished one", () => {
    assert.isUndefined(run([sse(payloads)]).decoder.problem)
    assert.isTrue(run([sse(payloads)]).decoder.ended)
    assert.strictEqual(run([sse(payloads.slice(0, 2))]).decoder.problem?.error.status, 502)
    assert.strictEqual(run([]).decoder.problem?.error.status, 502)
    const unterminated = run([sse(payloads.slice(0, 4)), Buffer.from("data: [DONE]\n")])
    assert.isTrue(unterminated.decoder.ended)
    const cut = run([sse(payloads.slice(0, 2)), Buffer.from('data: {"choi')])
    assert.strictEqual(cut.decoder.problem?.error.status, 502)
    assert.notInclude(cut.out.toString(), "choi\n")
  })

  it("refuses events that are no JSON object, and ones without an end", () => {
    for (const odd of ['data: {"id":"x","choi\n\n', "data: hello\n\n", "data: [1]\n\n", 'data: "usage"\n\n']) {
      assert.strictEqual(run([Buffer.from(odd)]).decoder.problem?.error.status, 502, odd)
    }
    const decoder = new OpenAiStreamDecoder(false)
    const block = Buffer.alloc(1024 * 1024, 0x61)
    for (let index = 0; index < 40 && decoder.problem === undefined; index += 1) decoder.feed(block)
    assert.strictEqual(decoder.problem?.error.status, 502)
  })

  it("keeps all text of a long stream, though not its events", () => {
    const decoder = new OpenAiStreamDecoder(false)
    for (let index = 0; index < 2_000; index += 1) decoder.feed(sse([chunk({ content: `${index} ` })]))
    const words = decoder.text().trim().split(" ")
    assert.strictEqual(words.length, 2_000)
    assert.strictEqual(words.at(-1), "1999")
  })
})
