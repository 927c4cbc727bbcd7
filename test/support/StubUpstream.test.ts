import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { Pool } from "undici"
import { stubText, stubUsage } from "#test/support/openai-answers.ts"
import { StubUpstream, type Behaviour } from "#test/support/StubUpstream.ts"

interface Answer {
  readonly status: number
  readonly headers: Record<string, string | string[] | undefined>
  readonly text: string
  readonly parts: ReadonlyArray<Buffer>
}

const call = async (pool: Pool, path: string, body: object, signal?: AbortSignal): Promise<Answer> => {
  const answer = await pool.request({
    method: "POST",
    path,
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    ...(signal === undefined ? {} : { signal })
  })
  const parts: Array<Buffer> = []
  for await (const part of answer.body) parts.push(part as Buffer)
  return { status: answer.statusCode, headers: answer.headers, text: Buffer.concat(parts).toString(), parts }
}

const chat = (pool: Pool, model: string, more: object = {}, signal?: AbortSignal) =>
  call(pool, "/v1/chat/completions", { model, messages: [{ role: "user", content: "Hi" }], ...more }, signal)

const withStub = (run: (stub: StubUpstream, pool: Pool) => Promise<void>) =>
  Effect.gen(function* () {
    const stub = yield* StubUpstream.scoped()
    const pool = yield* Effect.acquireRelease(
      Effect.sync(() => new Pool(`http://127.0.0.1:${stub.port}`, { connections: 4 })),
      (pool) => Effect.promise(() => pool.destroy())
    )
    yield* Effect.promise(() => run(stub, pool))
  })

/** The JSON payloads of a stream, read as the SSE standard says. */
const payloads = (text: string): ReadonlyArray<string> =>
  text
    .split(/\r?\n\r?\n/)
    .map((event) => event.split(/\r?\n/).flatMap((line) => (line.startsWith("data: ") ? [line.slice(6)] : [])))
    .flatMap((lines) => (lines.length === 0 ? [] : [lines.join("\n")]))

const contentOf = (text: string): string =>
  payloads(text)
    .flatMap((payload) => (payload === "[DONE]" ? [] : [JSON.parse(payload)]))
    .map((event) => event.choices[0]?.delta.content ?? "")
    .join("")

const failure = (promise: Promise<unknown>): Promise<string> =>
  promise.then(
    () => "no failure",
    (error: Error & { code?: unknown }) => (error.code === "ECONNRESET" ? "ECONNRESET" : error.name)
  )

describe("StubUpstream", () => {
  it.effect("answers chat, completions, embeddings and models in OpenAI's shapes", () =>
    withStub(async (stub, pool) => {
      const whole = JSON.parse((await chat(pool, "bench")).text)
      assert.strictEqual(whole.choices[0].message.content, stubText)
      assert.deepStrictEqual(whole.usage, stubUsage)
      assert.strictEqual(whole.model, "bench")
      const legacy = JSON.parse((await call(pool, "/v1/completions", { model: "m", prompt: "Hi" })).text)
      assert.strictEqual(legacy.choices[0].text, stubText)
      const vectors = JSON.parse((await call(pool, "/v1/embeddings", { model: "m", input: ["a", "b"] })).text)
      assert.lengthOf(vectors.data, 2)
      const models = await pool.request({ method: "GET", path: "/v1/models" })
      assert.strictEqual(((await models.body.json()) as { object: string }).object, "list")
      assert.strictEqual((await call(pool, "/v1/unknown", {})).status, 404)
      assert.deepStrictEqual(
        stub.requests.map((request) => request.path),
        ["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/models", "/v1/unknown"]
      )
      await stub.until(() => stub.requests.every((request) => request.outcome === "answered"))
    })
  )

  it.effect("streams, with the usage only when it was asked for", () =>
    withStub(async (stub, pool) => {
      const plain = await chat(pool, "m?chunks=3", { stream: true })
      assert.isTrue(plain.text.endsWith("data: [DONE]\n\n"))
      assert.notInclude(plain.text, "usage")
      assert.strictEqual(contentOf(plain.text), "A gateway stands ")
      const asking = { stream: true, stream_options: { include_usage: true } }
      const asked = payloads((await chat(pool, "m", asking)).text)
      assert.deepStrictEqual(JSON.parse(asked.at(-2) ?? "").usage, stubUsage)
      assert.notInclude((await chat(pool, "m?usage=never", asking)).text, "prompt_tokens")
      assert.include((await chat(pool, "m?usage=always", { stream: true })).text, "prompt_tokens")
      assert.strictEqual(stub.requests[0]?.events, 6)
    })
  )

  it.effect("writes the same stream with CR LF, comments, several data lines and cut characters", () =>
    withStub(async (_, pool) => {
      const plain = contentOf((await chat(pool, "m", { stream: true })).text)
      for (const way of ["crlf", "comments", "multiline"]) {
        const odd = (await chat(pool, `m?${way}=1`, { stream: true })).text
        assert.include(odd, way === "crlf" ? "\r\n\r\n" : way === "comments" ? ": keep-alive" : ',\ndata: "choices"')
        assert.strictEqual(contentOf(odd), plain)
      }
      const cut = await chat(pool, "m?split_utf8=1", { stream: true })
      assert.include(contentOf(cut.text), "東京 🚀")
      assert.isTrue(cut.parts.some((part) => part.toString().includes("\ufffd")))
    })
  )

  it.effect("answers the scripted statuses in turn and keeps the last", () =>
    withStub(async (stub, pool) => {
      stub.script("m", { status: 500 }, { status: 429, retryAfter: "7" }, {})
      assert.strictEqual((await chat(pool, "m")).status, 500)
      const limited = await chat(pool, "m")
      assert.strictEqual(limited.headers["retry-after"], "7")
      assert.strictEqual(JSON.parse(limited.text).error.type, "rate_limit_error")
      assert.strictEqual((await chat(pool, "m")).status, 200)
      assert.strictEqual((await chat(pool, "m")).status, 200)
      assert.strictEqual((await chat(pool, "other?status=503")).status, 503)
      assert.strictEqual((await chat(pool, "other?stauts=503")).status, 400)
    })
  )

  it.effect("breaks connections before the headers, in the body and in a stream", () =>
    withStub(async (stub, pool) => {
      const failures: Array<readonly [Behaviour, object, string]> = [
        [{ fault: "reset" }, {}, "ECONNRESET"],
        [{ fault: "reset-body" }, {}, "ECONNRESET"],
        [{ fault: "reset-body" }, { stream: true }, "ECONNRESET"],
        [{ fault: "garbage" }, {}, "HTTPParserError"]
      ]
      for (const [behaviour, more, code] of failures) {
        stub.script("m", behaviour)
        assert.strictEqual(await failure(chat(pool, "m", more)), code)
      }
      for (const fault of ["short-length", "long-length"] as const) {
        stub.script("m", { fault })
        const broken = await chat(pool, "m").catch((error: Error) => error.message)
        assert.notStrictEqual(typeof broken === "string" ? broken : tryParse(broken.text), "whole")
      }
      await stub.until((stub) => stub.requests.every((request) => request.outcome === "broken"))
    })
  )

  it.effect("sends invalid JSON, error frames and streams without an end", () =>
    withStub(async (_, pool) => {
      assert.strictEqual(tryParse((await chat(pool, "m?fault=invalid-json")).text), "broken")
      const error = (await chat(pool, "m?fault=error-frame", { stream: true })).text
      assert.strictEqual(JSON.parse(payloads(error).at(-1) ?? "").error.type, "server_error")
      const ended = (await chat(pool, "m?fault=end-body", { stream: true })).text
      assert.notInclude(ended, "[DONE]")
    })
  )

  it.effect("waits for gates and tells which calls their client gave up", () =>
    withStub(async (stub, pool) => {
      const gate = Promise.withResolvers<void>()
      stub.script("m", { gate: gate.promise }, { fault: "hang" }, { fault: "hang-body" })
      const waiting = chat(pool, "m")
      await stub.until((stub) => stub.open === 1)
      gate.resolve()
      assert.strictEqual((await waiting).status, 200)
      for (const more of [{}, { stream: true }]) {
        const client = new AbortController()
        const left = failure(chat(pool, "m", more, client.signal))
        await stub.until((stub) => stub.open === 1)
        client.abort()
        assert.strictEqual(await left, "AbortError")
        await stub.until((stub) => stub.open === 0)
      }
      assert.strictEqual(stub.aborted, 2)
      assert.strictEqual(stub.requests.at(-1)?.outcome, "aborted")
      stub.dropConnections()
      await stub.until((stub) => stub.openSockets === 0)
    })
  )
})

const tryParse = (text: string): "whole" | "broken" => {
  try {
    JSON.parse(text)
    return "whole"
  } catch {
    return "broken"
  }
}
