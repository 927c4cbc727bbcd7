/** The official clients of Anthropic, Google and Vercel, unmodified, against a started gateway. */
import Anthropic, { APIError, BadRequestError, RateLimitError } from "@anthropic-ai/sdk"
import { createOpenAI } from "@ai-sdk/openai"
import { ApiError, GoogleGenAI, Type } from "@google/genai"
import { embed, generateImage, generateText, streamText, tool } from "ai"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { type OpenDatabase, openDatabase, until } from "#test/support/acceptance.ts"
import { anthropicError, anthropicEvents, anthropicStub } from "#test/support/anthropic-answers.ts"
import { geminiEvents, geminiStub } from "#test/support/gemini-answers.ts"
import { type Gateway, startGateway } from "#test/support/Gateway.ts"
import { answerEvents, answerJson, NativeStub } from "#test/support/NativeStub.ts"

let gateway: Gateway
let database: OpenDatabase
let anthropicUpstream: NativeStub
let geminiUpstream: NativeStub
let key: string
let keyId: string

const register = async (name: string, params: Record<string, unknown>, info: Record<string, unknown> = {}) => {
  const reply = await gateway.admin("POST", "/model/new", {
    model_name: name,
    gateway_params: params,
    model_info: { input_cost_per_token: 0.000001, output_cost_per_token: 0.000002, ...info }
  })
  assert.strictEqual(reply.status, 201, reply.text)
}

beforeAll(async () => {
  database = await openDatabase()
  gateway = await startGateway({ databaseUrl: database.url })
  anthropicUpstream = await NativeStub.start(anthropicStub)
  geminiUpstream = await NativeStub.start(geminiStub)
  await register("claude", {
    model: "anthropic/claude-upstream",
    api_base: anthropicUpstream.url,
    api_key: "ant-key",
    max_retries: 0
  })
  await register("gemini", {
    model: "gemini/gemini-upstream",
    api_base: geminiUpstream.url,
    api_key: "goog-key",
    max_retries: 0
  })
  const made = await gateway.key({})
  key = made.key
  keyId = made.id
}, 90_000)

afterAll(async () => {
  await gateway.stop()
  await database.close()
  await anthropicUpstream.stop()
  await geminiUpstream.stop()
})

const anthropic = () => new Anthropic({ apiKey: key, baseURL: gateway.url, maxRetries: 0 })
const hello = [{ role: "user" as const, content: "Hello" }]

const post = (path: string, body: unknown, headers: Record<string, string> = {}) =>
  fetch(gateway.url + path, {
    method: "POST",
    headers: { "content-type": "application/json", "x-api-key": key, ...headers },
    body: JSON.stringify(body)
  })

const spendRows = (operation: string) =>
  database.query<{ prompt: string; completion: string; status: string }>(
    `SELECT input_tokens::text AS prompt, output_tokens::text AS completion, status
     FROM spend_logs WHERE key_id = $1::text::uuid AND operation = $2`,
    [keyId, operation]
  )

describe("Anthropic's client", () => {
  it("creates messages; body, version and beta header arrive as they left", async () => {
    const params = { model: "claude", max_tokens: 50, messages: hello, from_tomorrow: { deep: [1, null] } }
    const message = await anthropic().messages.create(params, { headers: { "anthropic-beta": "a-1,b-2" } })
    assert.deepInclude(message.content[0], { type: "text", text: "Hello from upstream." })
    const { headers, json, path } = anthropicUpstream.last
    assert.deepStrictEqual(json, { ...params, model: "claude-upstream" })
    assert.strictEqual(path, "/v1/messages")
    assert.strictEqual(headers["anthropic-beta"], "a-1,b-2")
    assert.match(headers["anthropic-version"] as string, /^\d{4}-\d{2}-\d{2}$/)
    assert.strictEqual(headers["x-api-key"], "ant-key")
    const rows = await until(
      () => spendRows("messages"),
      (found) => found.length > 0
    )
    assert.deepInclude(rows[0], { prompt: "12", completion: "9", status: "success" })
  })

  it("streams, and the bytes of the stream are the upstream's", async () => {
    const stream = anthropic().messages.stream({ model: "claude", max_tokens: 50, messages: hello })
    const types: Array<string> = []
    stream.on("streamEvent", (event) => types.push(event.type))
    assert.strictEqual(await stream.finalText(), "Hello from upstream.")
    assert.include(types, "message_stop")
    const raw = await post(
      "/v1/messages",
      { model: "claude", max_tokens: 50, messages: hello, stream: true },
      { "provider-version": "2023-06-01" }
    )
    assert.strictEqual(raw.headers.get("content-type"), "text/event-stream")
    const expected = anthropicEvents("claude-upstream", ["Hello ", "from ", "upstream."]).join("")
    assert.strictEqual(await raw.text(), expected)
    assert.strictEqual(anthropicUpstream.last.headers["anthropic-version"], "2023-06-01")
  })

  it("calls tools and counts tokens", async () => {
    const tools = [{ name: "get_weather", input_schema: { type: "object" as const, properties: {} } }]
    const message = await anthropic().messages.create({ model: "claude", max_tokens: 50, messages: hello, tools })
    assert.deepInclude(message.content[0], { type: "tool_use", name: "get_weather" })
    const counted = await anthropic().messages.countTokens({ model: "claude", messages: hello })
    assert.strictEqual(counted.input_tokens, 42)
    const rows = await until(
      () => spendRows("count_tokens"),
      (found) => found.length > 0
    )
    assert.deepInclude(rows[0], { prompt: "0", completion: "0" })
  })

  it("reads the upstream's own words, retry-after in whole seconds, and whether to try again", async () => {
    const failing = async (status: number, type: string, headers = {}) => {
      anthropicUpstream.answer = (_request, response) =>
        answerJson(response, anthropicError(type, `Upstream says ${type}.`), status, headers)
      try {
        await anthropic().messages.create({ model: "claude", max_tokens: 50, messages: hello })
      } catch (error) {
        if (error instanceof APIError) return error
      } finally {
        anthropicUpstream.answer = undefined
      }
      return assert.fail("no failure")
    }
    const refused = await failing(400, "invalid_request_error")
    assert.instanceOf(refused, BadRequestError)
    assert.strictEqual((refused.error as { type: string }).type, "error")
    assert.include(refused.message, "Upstream says invalid_request_error.")
    assert.strictEqual(refused.headers?.get("x-should-retry"), "false")
    const limited = await failing(429, "rate_limit_error", { "retry-after": "6.2" })
    assert.instanceOf(limited, RateLimitError)
    assert.include(limited.message, "Upstream says rate_limit_error.")
    assert.strictEqual(limited.headers?.get("retry-after"), "7")
    assert.strictEqual(limited.headers?.get("x-should-retry"), "true")
    const overloaded = await failing(529, "overloaded_error")
    assert.strictEqual(overloaded.status, 502)
    assert.include(overloaded.message, "Upstream says overloaded_error.")
  })

  it("hears of an error inside a stream in the upstream's words", async () => {
    anthropicUpstream.answer = (_request, response) => {
      const events = anthropicEvents("claude-upstream", ["Hello "]).slice(0, 4)
      const error = anthropicError("overloaded_error", "Overloaded in the middle.")
      return answerEvents(response, [...events, `event: error\ndata: ${JSON.stringify(error)}\n\n`])
    }
    const stream = anthropic().messages.stream({ model: "claude", max_tokens: 50, messages: hello })
    const failure = await stream.finalText().catch((error: unknown) => error)
    anthropicUpstream.answer = undefined
    assert.instanceOf(failure, APIError)
    assert.include(String(failure), "Overloaded in the middle.")
  })

  it("is 400 for other models, without a version, without max_tokens, and 401 without a key", async () => {
    const body = { model: "claude", max_tokens: 5, messages: hello }
    const version = { "anthropic-version": "2023-06-01" }
    const codeOf = async (response: Response) => {
      const json = (await response.json()) as { type: string; error: { code: string; param?: string } }
      assert.strictEqual(json.type, "error")
      return `${response.status} ${json.error.code} ${json.error.param ?? ""}`
    }
    const other = await post("/v1/messages", { ...body, model: "gemini" }, version)
    assert.strictEqual(await codeOf(other), "400 unsupported_model model")
    assert.strictEqual(await codeOf(await post("/v1/messages", body)), "400 missing_field provider-version")
    const { max_tokens: _, ...unbounded } = body
    assert.strictEqual(await codeOf(await post("/v1/messages", unbounded, version)), "400 missing_field max_tokens")
    assert.strictEqual(
      await codeOf(await post("/v1/messages", body, { ...version, "x-api-key": "sk-nobody" })),
      "401 invalid_session "
    )
  })
})

const google = () =>
  new GoogleGenAI({
    apiKey: key,
    httpOptions: { baseUrl: gateway.url, apiVersion: "v1beta", retryOptions: { attempts: 1 } }
  })

describe("Google's client", () => {
  it("generates content natively, which is a chat completion too", async () => {
    const answer = await google().models.generateContent({ model: "gemini", contents: "Hello" })
    assert.strictEqual(answer.text, "Hello from Gemini.")
    assert.strictEqual(answer.usageMetadata?.totalTokenCount, 15)
    assert.strictEqual(geminiUpstream.last.path, "/v1beta/models/gemini-upstream:generateContent")
    assert.strictEqual(geminiUpstream.last.headers["x-goog-api-key"], "goog-key")
    const raw = await post("/v1beta/models/gemini:generateContent", { contents: [{ parts: [{ text: "Hello" }] }] })
    const json = (await raw.json()) as Record<string, unknown>
    assert.strictEqual(json["object"], "chat.completion")
    assert.deepInclude((json["choices"] as Array<object>)[0], {
      message: { role: "assistant", content: "Hello from Gemini." },
      finish_reason: "stop"
    })
    assert.deepInclude(json["usage"], { prompt_tokens: 7, completion_tokens: 8, total_tokens: 15 })
    assert.isArray(json["candidates"])
  })

  it("streams natively", async () => {
    const stream = await google().models.generateContentStream({ model: "gemini", contents: "Hello" })
    const texts: Array<string> = []
    for await (const chunk of stream) texts.push(chunk.text ?? "")
    assert.strictEqual(texts.join(""), "Hello from Gemini.")
  })

  it("talks to every other model, in names with slashes too, whole and streamed", async () => {
    const config = { systemInstruction: "Be brief.", temperature: 0, maxOutputTokens: 100 }
    const asked = { model: "sandbox/chat", contents: "Hello you", config }
    const answer = await google().models.generateContent(asked)
    assert.strictEqual(answer.text, "The sandbox heard: Hello you")
    assert.strictEqual(answer.candidates?.[0]?.finishReason, "STOP")
    const stream = await google().models.generateContentStream(asked)
    let text = ""
    let tokens: number | undefined
    for await (const chunk of stream) {
      text += chunk.text ?? ""
      tokens = chunk.usageMetadata?.candidatesTokenCount ?? tokens
    }
    assert.strictEqual(text, "The sandbox heard: Hello you")
    assert.strictEqual(tokens, answer.usageMetadata?.candidatesTokenCount)
    for (const method of ["generateContent", "streamGenerateContent"]) {
      const escaped = await post(`/v1beta/models/sandbox%2Fchat:${method}?key=${key}`, { contents: [{ text: "Hi" }] })
      assert.strictEqual(escaped.status, 200)
      assert.include(await escaped.text(), "candidates")
    }
  })

  it("calls functions and reads what they answer", async () => {
    const weather = {
      name: "get_weather",
      parameters: { type: Type.OBJECT, properties: { city: { type: Type.STRING } }, required: ["city"] }
    }
    const config = { tools: [{ functionDeclarations: [weather] }] }
    const contents = [{ role: "user", parts: [{ text: "get_weather please" }] }]
    for (const stream of [false, true]) {
      const asked = { model: "sandbox/chat", contents, config }
      const calls = []
      if (stream) {
        for await (const chunk of await google().models.generateContentStream(asked)) {
          calls.push(...(chunk.functionCalls ?? []))
        }
      } else calls.push(...((await google().models.generateContent(asked)).functionCalls ?? []))
      assert.strictEqual(calls.length, 1)
      assert.strictEqual(calls[0]?.name, "get_weather")
      assert.deepStrictEqual(calls[0]?.args, { city: "get_weather please" })
      const answered = await google().models.generateContent({
        model: "sandbox/chat",
        config,
        contents: [
          ...contents,
          { role: "model", parts: [{ functionCall: calls[0]! }] },
          {
            role: "user",
            parts: [{ functionResponse: { id: calls[0]!.id!, name: "get_weather", response: { c: 9 } } }]
          }
        ]
      })
      assert.strictEqual(answered.text, 'The tool answered: {"c":9}')
    }
  })

  it("asks for JSON by a schema", async () => {
    const answer = await google().models.generateContent({
      model: "sandbox/chat",
      contents: "Blue",
      config: {
        responseMimeType: "application/json",
        responseSchema: { type: Type.OBJECT, properties: { colour: { type: Type.STRING } } }
      }
    })
    assert.deepStrictEqual(JSON.parse(answer.text ?? ""), { colour: "Blue" })
  })

  it("is told by status what is wrong", async () => {
    const failure = await google()
      .models.generateContent({ model: "nobody", contents: "Hello" })
      .catch((error: unknown) => error)
    assert.instanceOf(failure, ApiError)
    assert.strictEqual((failure as ApiError).status, 404)
    const cached = await google()
      .models.generateContent({ model: "sandbox/chat", contents: "Hello", config: { cachedContent: "c" } })
      .catch((error: unknown) => error)
    assert.include(String(cached), "unsupported_parameter")
  })
})

describe("the Vercel AI SDK", () => {
  const openai = () => createOpenAI({ apiKey: key, baseURL: `${gateway.url}/v1` })

  it("generates and streams text on every wire", async () => {
    for (const [model, expected] of [
      ["sandbox/chat", "The sandbox heard: Hello"],
      ["claude", "Hello from upstream."],
      ["gemini", "Hello from Gemini."]
    ] as const) {
      const whole = await generateText({ model: openai().chat(model), prompt: "Hello" })
      assert.strictEqual(whole.text, expected)
      const stream = streamText({ model: openai().chat(model), prompt: "Hello" })
      assert.strictEqual(await stream.text, expected)
      assert.isAbove((await stream.usage).outputTokens ?? 0, 0)
    }
  })

  it("calls tools", async () => {
    const { jsonSchema } = await import("ai")
    const inputSchema = jsonSchema<{ city: string }>({ type: "object", properties: { city: { type: "string" } } })
    const result = await generateText({
      model: openai().chat("sandbox/chat"),
      prompt: "use get_weather",
      tools: { get_weather: tool({ inputSchema }) }
    })
    assert.strictEqual(result.toolCalls[0]?.toolName, "get_weather")
  })

  it("embeds and makes images", async () => {
    const { embedding } = await embed({ model: openai().embedding("sandbox/embed"), value: "Hello" })
    assert.strictEqual(embedding.length, 256)
    const { image } = await generateImage({ model: openai().image("sandbox/image"), prompt: "A cat", size: "64x64" })
    assert.strictEqual(Buffer.from(image.uint8Array).toString("latin1", 1, 4), "PNG")
  })
})

describe("post guardrails on native streams", () => {
  beforeAll(async () => {
    const reply = await gateway.admin("POST", "/guardrail/new", {
      guardrail_name: "no-secrets",
      guardrail_type: "deny_list",
      mode: "block",
      config: { stage: "post", phrases: ["forbidden fruit"] }
    })
    assert.include([200, 201], reply.status, reply.text)
  })

  const pieces = ["This is fine. ", "Now the forb", "idden fr", "uit comes. ", "And more."]

  it("let no blocked text out of /v1/messages", async () => {
    anthropicUpstream.answer = (request, response) =>
      answerEvents(response, anthropicEvents(request.json["model"], pieces))
    const text = await until(
      async () => {
        const response = await post(
          "/v1/messages",
          { model: "claude", max_tokens: 50, messages: hello, stream: true },
          { "anthropic-version": "2023-06-01" }
        )
        return response.text()
      },
      (raw) => raw.includes("guardrail_blocked")
    )
    anthropicUpstream.answer = undefined
    assert.include(text, "This is fine.")
    assert.notMatch(text, /forb|idden|uit comes|And more/)
    assert.match(text, /event: error\ndata: \{"type":"error","error":\{.*"guardrail_blocked"/)
    const clean = anthropic().messages.stream({ model: "claude", max_tokens: 50, messages: hello })
    assert.strictEqual(await clean.finalText(), "Hello from upstream.")
  })

  it("let no blocked text out of native and converted generateContent streams", async () => {
    geminiUpstream.answer = (_request, response) => answerEvents(response, geminiEvents(pieces))
    const body = {
      contents: [{ role: "user", parts: [{ text: "Say: This is fine. Then the forbidden fruit. More." }] }]
    }
    for (const model of ["gemini", "sandbox%2Fchat"]) {
      const response = await post(`/v1beta/models/${model}:streamGenerateContent?alt=sse`, body)
      const text = await response.text()
      assert.include(text, "guardrail_blocked", model)
      assert.notInclude(text, "forb")
      assert.notInclude(text, "uit comes")
    }
    geminiUpstream.answer = undefined
    const stream = await google().models.generateContentStream({ model: "gemini", contents: "Hello" })
    let said = ""
    for await (const chunk of stream) said += chunk.text ?? ""
    assert.strictEqual(said, "Hello from Gemini.")
  })
})
