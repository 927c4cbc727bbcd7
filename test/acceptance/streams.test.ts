/** Streams to the letter: what passes, how they end, what is charged when they are cut (model-api.md; lessons 9-17). */
import { request as httpRequest } from "node:http"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { booksOf, chatBody, type OpenDatabase, openDatabase, registerModel, until } from "#test/support/acceptance.ts"
import { type Gateway, startGateway } from "#test/support/Gateway.ts"
import { stubUsage } from "#test/support/openai-answers.ts"
import { StubUpstream } from "#test/support/StubUpstream.ts"

const price = { input_cost_per_token: 0.000001, output_cost_per_token: 0.000002 }

describe("streams", () => {
  let stub: StubUpstream
  let database: OpenDatabase
  let gateway: Gateway

  beforeAll(async () => {
    stub = await StubUpstream.start()
    database = await openDatabase()
    gateway = await startGateway({ databaseUrl: database.url })
    for (const name of ["whole", "hanging", "broken", "silent", "framed", "slow"]) {
      await registerModel(gateway, name, stub.url, price, { max_retries: 0, stream_timeout: 2 })
    }
    await until(
      () => gateway.admin("GET", "/v1/models"),
      ({ text }) => text.includes('"slow"')
    )
  })

  afterAll(async () => {
    await gateway.stop()
    await database.close()
    await stub.stop()
  })

  const stream = (key: string, model: string, more: Readonly<Record<string, unknown>> = {}) =>
    gateway.request("POST", "/v1/chat/completions", { token: key, body: chatBody(model, { stream: true, ...more }) })

  const dataLines = (text: string) => text.split("\n").filter((line) => line.startsWith("data: "))

  it("ends with data: [DONE] and a blank line, and shows usage only when asked", async () => {
    const { id, key } = await gateway.key()
    const reply = await stream(key, "whole")
    assert.strictEqual(reply.headers.get("content-type"), "text/event-stream")
    assert.isTrue(reply.text.endsWith("data: [DONE]\n\n"))
    assert.notInclude(reply.text, `"prompt_tokens":${stubUsage.prompt_tokens}`)
    const sent = stub.requests.at(-1)?.json as { stream_options?: { include_usage?: boolean } }
    assert.strictEqual(sent.stream_options?.include_usage, true)
    const asked = await stream(key, "whole", { stream_options: { include_usage: true } })
    assert.include(asked.text, `"prompt_tokens":${stubUsage.prompt_tokens}`)
    const books = await until(
      () => booksOf(database, id),
      ({ rows }) => rows === 2
    )
    const cost = 2 * (stubUsage.prompt_tokens * 1e-6 + stubUsage.completion_tokens * 2e-6)
    assert.strictEqual(Number(books.keySpend), Number(cost.toFixed(9)))
  })

  it("carries the quota headers", async () => {
    const { key } = await gateway.key({ rpm_limit: 9, tpm_limit: 1_000_000, max_budget: 5 })
    const reply = await stream(key, "whole", { max_tokens: 50 })
    assert.strictEqual(reply.headers.get("x-gateway-ratelimit-limit"), "9")
    assert.strictEqual(reply.headers.get("x-gateway-ratelimit-remaining"), "8")
    assert.strictEqual(reply.headers.get("x-gateway-tokenlimit-limit"), "1000000")
    assert.strictEqual(reply.headers.get("x-gateway-budget-remaining"), "5")
    const next = await stream(key, "whole", { max_tokens: 50 })
    const cost = stubUsage.prompt_tokens * 1e-6 + stubUsage.completion_tokens * 2e-6
    assert.strictEqual(Number(next.headers.get("x-gateway-budget-remaining")), Number((5 - cost).toFixed(9)))
    const unlimited = await stream((await gateway.key()).key, "whole")
    for (const header of [
      "x-gateway-ratelimit-limit",
      "x-gateway-ratelimit-remaining",
      "x-gateway-ratelimit-reset",
      "x-gateway-tokenlimit-limit",
      "x-gateway-tokenlimit-remaining",
      "x-gateway-budget-remaining"
    ]) {
      assert.strictEqual(unlimited.headers.get(header), "unlimited", header)
    }
  })

  it("passes chunks on as they come", async () => {
    const { key } = await gateway.key()
    stub.script("slow", { chunks: 3, delay: 150 })
    const arrivals: Array<number> = []
    const response = await fetch(`${gateway.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}` },
      body: JSON.stringify(chatBody("slow", { stream: true }))
    })
    for await (const _ of response.body!) arrivals.push(performance.now())
    assert.isAbove(arrivals.at(-1)! - arrivals[0]!, 250, "the chunks came all at once")
  })

  it("waits for a client that reads slowly, and loses nothing", async () => {
    const { key } = await gateway.key()
    const chunks = 30_000
    stub.script("slow", { chunks })
    const text = await new Promise<string>((resolve, reject) => {
      const request = httpRequest(
        `${gateway.url}/v1/chat/completions`,
        { method: "POST", headers: { authorization: `Bearer ${key}` } },
        (response) => {
          let read = ""
          response.setEncoding("utf8")
          // Longer than the stream timeout: a silence of the client's is none of the upstream's.
          setTimeout(() => response.on("data", (part: string) => void (read += part)), 2_500)
          response.once("end", () => resolve(read)).on("error", reject)
        }
      )
      request.on("error", reject)
      request.end(JSON.stringify(chatBody("slow", { stream: true })))
    })
    assert.isTrue(text.endsWith("data: [DONE]\n\n"))
    assert.isAbove(dataLines(text).length, chunks)
  })

  it("cancels the upstream when the client leaves, and charges what was generated", async () => {
    const { id, key } = await gateway.key({ max_budget: 1 })
    stub.script("hanging", { chunks: 5, fault: "hang-body" })
    const before = stub.aborted
    await new Promise<void>((resolve, reject) => {
      const request = httpRequest(
        `${gateway.url}/v1/chat/completions`,
        { method: "POST", headers: { authorization: `Bearer ${key}` } },
        (response) => {
          response.once("data", () => {
            request.destroy()
            resolve()
          })
          response.on("error", () => undefined)
        }
      )
      request.on("error", reject)
      request.end(JSON.stringify(chatBody("hanging", { stream: true, max_tokens: 100 })))
    }).catch(() => undefined)
    await stub.until(() => stub.aborted > before, 5_000)
    const books = await until(
      () => booksOf(database, id),
      ({ rows }) => rows === 1
    )
    assert.isAbove(Number(books.keySpend), 0)
    const [row] = await database.query<{ status: string; estimated: boolean }>(
      "SELECT status, estimated FROM spend_logs WHERE key_id = $1::text::uuid",
      [id]
    )
    assert.deepStrictEqual({ ...row }, { status: "cancelled", estimated: true })
  })

  it("ends a stream that the upstream broke with an error event, and no [DONE]", async () => {
    const { id, key } = await gateway.key()
    stub.script("broken", { chunks: 6, fault: "reset-body" })
    const reply = await stream(key, "broken")
    assert.strictEqual(reply.status, 200)
    const last = dataLines(reply.text).at(-1) ?? ""
    assert.strictEqual((JSON.parse(last.slice(6)) as { error: { code: string } }).error.code, "upstream_error")
    assert.notInclude(reply.text, "[DONE]")
    const [row] = await until(
      () => database.query<{ status: string }>("SELECT status FROM spend_logs WHERE key_id = $1::text::uuid", [id]),
      (rows) => rows.length === 1
    )
    assert.strictEqual(row?.status, "error")
  })

  it("ends a stream that fell silent within its deadline", async () => {
    const { key } = await gateway.key()
    stub.script("silent", { chunks: 2, fault: "hang-body" })
    const started = performance.now()
    const reply = await stream(key, "silent")
    assert.isBelow(performance.now() - started, 5_000)
    assert.include(dataLines(reply.text).at(-1), "upstream_timeout")
  })

  it("passes on an error frame inside a 200 stream as an error", async () => {
    const { key } = await gateway.key()
    stub.script("framed", { chunks: 4, fault: "error-frame" })
    const reply = await stream(key, "framed")
    assert.include(dataLines(reply.text).at(-1), '"error"')
    assert.notInclude(reply.text, "[DONE]")
  })
})
