/** Promises 2 and 4: concurrent calls never pass a limit, with one process and with three; the books agree. */
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { booksOf, chatBody, type OpenDatabase, openDatabase, registerModel, until } from "#test/support/acceptance.ts"
import { type Gateway, startGateway } from "#test/support/Gateway.ts"
import { stubUsage } from "#test/support/openai-answers.ts"
import { StubUpstream } from "#test/support/StubUpstream.ts"

// A call costs a cent whatever it says: a budget of five cents and a half fits five.
const price = { cost_per_request: 0.01, input_cost_per_token: 0, output_cost_per_token: 0 }

describe.each([
  ["one gateway", 1, {}],
  ["three gateways on one PostgreSQL", 3, {}],
  ["one gateway of three processes", 1, { GATEWAY_PROCESSES: "3" }]
] as const)("limits of %s", (_name, count, env) => {
  let stub: StubUpstream
  let database: OpenDatabase
  let gateways: ReadonlyArray<Gateway> = []

  beforeAll(async () => {
    stub = await StubUpstream.start()
    database = await openDatabase()
    const first = await startGateway({ databaseUrl: database.url, env })
    gateways = [
      first,
      ...(await Promise.all(Array.from({ length: count - 1 }, () => startGateway({ databaseUrl: database.url, env }))))
    ]
    await registerModel(first, "priced", stub.url, price)
    for (const gateway of gateways) {
      await until(
        () => gateway.admin("GET", "/v1/models"),
        ({ text }) => text.includes('"priced"')
      )
    }
  })

  afterAll(async () => {
    await Promise.all(gateways.map((gateway) => gateway.stop()))
    await database.close()
    await stub.stop()
  })

  const callAll = (calls: number, key: string, more: Readonly<Record<string, unknown>> = {}) =>
    Promise.all(
      Array.from({ length: calls }, (_, index) =>
        gateways[index % gateways.length]!.request("POST", "/v1/chat/completions", {
          token: key,
          body: chatBody("priced", { max_tokens: 100, ...more })
        })
      )
    )

  const settled = (id: string, rows: number) =>
    until(
      () => booksOf(database, id),
      (books) => books.rows === rows && books.keyRequests === rows
    )

  it("lets at most five of forty concurrent calls through a budget that fits five", async () => {
    const { id, key } = await gateways[0]!.key({ max_budget: 0.055 })
    const before = stub.received
    const replies = await callAll(40, key)
    const passed = replies.filter(({ status }) => status === 200).length
    const refused = replies.filter(({ status }) => status === 429)
    assert.strictEqual(passed + refused.length, 40)
    assert.isAtLeast(passed, 1)
    assert.isAtMost(passed, 5)
    assert.strictEqual(stub.received - before, passed)
    for (const reply of refused) {
      assert.strictEqual((reply.json as { error: { code: string } }).error.code, "budget_exceeded")
      assert.strictEqual(reply.headers.get("x-should-retry"), "false")
    }
    const books = await settled(id, passed)
    assert.deepStrictEqual(books, {
      rows: passed,
      rowSpend: (passed / 100).toString(),
      dailyRequests: passed,
      dailySpend: (passed / 100).toString(),
      keyRequests: passed,
      keySpend: (passed / 100).toString()
    })
  })

  it("spends a budget to its end and not beyond when calls come one after another", async () => {
    const { id, key } = await gateways[0]!.key({ max_budget: 0.055 })
    const statuses: Array<number> = []
    for (let call = 0; call < 8; call++) {
      const [reply] = await callAll(1, key)
      statuses.push(reply!.status)
    }
    assert.deepStrictEqual(statuses, [200, 200, 200, 200, 200, 429, 429, 429])
    assert.strictEqual((await settled(id, 5)).keySpend, "0.05")
  })

  it("lets exactly five of twelve calls through rpm_limit 5", async () => {
    const { id, key } = await gateways[0]!.key({ rpm_limit: 5 })
    const replies = await callAll(12, key)
    assert.strictEqual(replies.filter(({ status }) => status === 200).length, 5)
    const refused = replies.filter(({ status }) => status === 429)
    assert.strictEqual(refused.length, 7)
    for (const reply of refused) {
      assert.strictEqual((reply.json as { error: { code: string } }).error.code, "rate_limit_exceeded")
      assert.strictEqual(reply.headers.get("x-gateway-ratelimit-limit"), "5")
      const wait = Number(reply.headers.get("retry-after"))
      assert.isTrue(wait >= 1 && wait <= 60, `retry-after ${wait}`)
    }
    await settled(id, 5)
  })

  it("holds a token limit", async () => {
    const perCall = stubUsage.total_tokens
    const { key } = await gateways[0]!.key({ tpm_limit: perCall * 3 })
    // As long as the stub says: an upstream that reports more than was reserved may pass the limit by that much.
    const prompt = "word ".repeat(stubUsage.prompt_tokens)
    const statuses: Array<number> = []
    for (let call = 0; call < 6; call++) {
      const [reply] = await callAll(1, key, { messages: [{ role: "user", content: prompt }] })
      statuses.push(reply!.status)
      if (reply!.status === 429) {
        assert.strictEqual((reply!.json as { error: { code: string } }).error.code, "token_limit_exceeded")
      }
    }
    // Each call is admitted on its worst case, so the last one that would fit by usage may be refused.
    const passed = statuses.filter((status) => status === 200).length
    assert.isTrue(passed >= 2 && passed <= 3, statuses.join())
    assert.strictEqual(statuses.at(-1), 429)
  })

  it("agrees to the nano-dollar after many concurrent calls", async () => {
    const { id, key } = await gateways[0]!.key({ max_budget: 100, rpm_limit: 100_000, tpm_limit: 100_000_000 })
    const replies = await callAll(150, key)
    const passed = replies.filter(({ status }) => status === 200).length
    assert.strictEqual(passed, 150, replies.find(({ status }) => status !== 200)?.text)
    const books = await settled(id, passed)
    assert.deepStrictEqual(
      [books.rowSpend, books.dailySpend, books.keySpend, books.dailyRequests],
      ["1.5", "1.5", "1.5", 150]
    )
    const usage = await gateways[0]!.request("GET", "/v1/usage", { token: key })
    assert.deepStrictEqual(usage.json, {
      total_spend: 1.5,
      total_requests: 150,
      prompt_tokens: stubUsage.prompt_tokens * 150,
      completion_tokens: stubUsage.completion_tokens * 150
    })
  })
})
