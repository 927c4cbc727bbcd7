/** The official OpenAI client, unmodified, against a gateway started as the README starts it. */
import OpenAI from "openai"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { type OpenDatabase, openDatabase, registerModel, until } from "#test/support/acceptance.ts"
import { type Gateway, startGateway } from "#test/support/Gateway.ts"
import { StubUpstream } from "#test/support/StubUpstream.ts"

describe("the official OpenAI client", () => {
  let stub: StubUpstream
  let database: OpenDatabase
  let gateway: Gateway
  let client: OpenAI

  const clientOf = (apiKey: string) => new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey, maxRetries: 0 })
  const hello = [{ role: "user" as const, content: "Hello" }]

  const apiError = (error: unknown) => (error instanceof OpenAI.APIError ? error : assert.fail("no API error"))

  const failureOf = async (call: Promise<unknown>) => {
    try {
      await call
    } catch (error) {
      return error
    }
    return assert.fail("the call succeeded")
  }

  beforeAll(async () => {
    stub = await StubUpstream.start()
    database = await openDatabase()
    gateway = await startGateway({ databaseUrl: database.url })
    client = clientOf((await gateway.key()).key)
    await registerModel(gateway, "upstream", stub.url)
    await until(
      () => gateway.admin("GET", "/v1/models"),
      ({ text }) => text.includes('"upstream"')
    )
  })

  afterAll(async () => {
    await gateway.stop()
    await database.close()
    await stub.stop()
  })

  it("lists and retrieves models", async () => {
    const ids = (await client.models.list()).data.map(({ id }) => id)
    assert.includeMembers(ids, ["sandbox/chat", "sandbox/embed", "upstream"])
    const model = await client.models.retrieve("sandbox/chat")
    assert.deepStrictEqual([model.id, model.object, model.owned_by], ["sandbox/chat", "model", "sandbox"])
  })

  it("lists only what the key may use", async () => {
    const restricted = clientOf((await gateway.key({ models: ["sandbox/chat", "no-such-model"] })).key)
    assert.deepStrictEqual(
      (await restricted.models.list()).data.map(({ id }) => id),
      ["sandbox/chat"]
    )
    assert.instanceOf(await failureOf(restricted.models.retrieve("upstream")), OpenAI.NotFoundError)
    assert.instanceOf(
      await failureOf(restricted.chat.completions.create({ model: "upstream", messages: hello })),
      OpenAI.NotFoundError
    )
  })

  for (const model of ["sandbox/chat", "upstream"]) {
    it(`chats with ${model}`, async () => {
      const answer = await client.chat.completions.create({ model, messages: hello })
      assert.strictEqual(answer.object, "chat.completion")
      assert.isNotEmpty(answer.choices[0]?.message.content)
      assert.isAbove(answer.usage?.total_tokens ?? 0, 0)
    })

    it(`streams from ${model}`, async () => {
      const stream = await client.chat.completions.create({ model, messages: hello, stream: true })
      let text = ""
      let usages = 0
      for await (const chunk of stream) {
        text += chunk.choices[0]?.delta.content ?? ""
        if (chunk.usage !== undefined && chunk.usage !== null) usages++
      }
      assert.isNotEmpty(text)
      assert.strictEqual(usages, 0, "usage was not asked for")
    })

    it(`streams from ${model} with usage when asked`, async () => {
      const stream = await client.chat.completions.create({
        model,
        messages: hello,
        stream: true,
        stream_options: { include_usage: true }
      })
      const usages = []
      for await (const chunk of stream) if (chunk.usage) usages.push(chunk.usage)
      assert.strictEqual(usages.length, 1)
    })
  }

  it("calls tools of the sandbox", async () => {
    const answer = await client.chat.completions.create({
      model: "sandbox/chat",
      messages: hello,
      tools: [{ type: "function", function: { name: "greet", parameters: { type: "object", properties: {} } } }],
      tool_choice: "required"
    })
    const [call] = answer.choices[0]?.message.tool_calls ?? []
    assert.strictEqual(call?.type === "function" ? call.function.name : undefined, "greet")
  })

  it("embeds, as floats and in the client's own base64", async () => {
    const answer = await client.embeddings.create({ model: "sandbox/embed", input: ["one", "two"], dimensions: 8 })
    assert.deepStrictEqual(
      answer.data.map(({ embedding }) => embedding.length),
      [8, 8]
    )
    const floats = await client.embeddings.create({ model: "sandbox/embed", input: "one", encoding_format: "float" })
    assert.isArray(floats.data[0]?.embedding)
  })

  it("completes the legacy way", async () => {
    const answer = await client.completions.create({ model: "sandbox/chat", prompt: "Hello" })
    assert.isNotEmpty(answer.choices)
  })

  it("gets its typed errors", async () => {
    const bad = await failureOf(client.chat.completions.create({ model: "sandbox/chat", messages: [] }))
    assert.instanceOf(bad, OpenAI.BadRequestError)
    assert.deepStrictEqual([apiError(bad).type, apiError(bad).param], ["validation_error", "messages"])

    const unauthenticated = await failureOf(clientOf("sk-wrong").models.list())
    assert.instanceOf(unauthenticated, OpenAI.AuthenticationError)
    assert.strictEqual(apiError(unauthenticated).code, "invalid_session")

    const absent = await failureOf(client.chat.completions.create({ model: "no-such-model", messages: hello }))
    assert.instanceOf(absent, OpenAI.NotFoundError)
    assert.strictEqual(apiError(absent).code, "model_not_found")

    const limited = clientOf((await gateway.key({ rpm_limit: 1 })).key)
    await limited.chat.completions.create({ model: "sandbox/chat", messages: hello })
    const refused = await failureOf(limited.chat.completions.create({ model: "sandbox/chat", messages: hello }))
    assert.instanceOf(refused, OpenAI.RateLimitError)
    assert.strictEqual(apiError(refused).code, "rate_limit_exceeded")
  })

  it("does not retry a budget that is used up", async () => {
    const { key } = await gateway.key({ max_budget: 0 })
    await registerModel(gateway, "dear", stub.url, { cost_per_request: 1 })
    let requests = 0
    const retrying = new OpenAI({
      baseURL: `${gateway.url}/v1`,
      apiKey: key,
      maxRetries: 5,
      fetch: (url, init) => {
        requests += 1
        return fetch(url, init)
      }
    })
    await until(
      () => gateway.admin("GET", "/v1/models"),
      ({ text }) => text.includes('"dear"')
    )
    const refused = await failureOf(retrying.chat.completions.create({ model: "dear", messages: hello }))
    assert.strictEqual(apiError(refused).code, "budget_exceeded")
    assert.strictEqual(requests, 1, "it retried")
  })
})
