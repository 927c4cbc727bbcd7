/** Budgets bind along the chain: user, team, organization and customer limits hold on model calls (issue 3, item 2). */
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { chatBody, type OpenDatabase, openDatabase, registerModel, until } from "#test/support/acceptance.ts"
import { type Gateway, startGateway } from "#test/support/Gateway.ts"
import { StubUpstream } from "#test/support/StubUpstream.ts"

describe("the chain of limits", () => {
  let stub: StubUpstream
  let database: OpenDatabase
  let gateway: Gateway

  beforeAll(async () => {
    stub = await StubUpstream.start({ record: false })
    database = await openDatabase()
    gateway = await startGateway({ databaseUrl: database.url })
    await registerModel(gateway, "priced", stub.url, { cost_per_request: 0.01 })
    await until(
      () => gateway.admin("GET", "/v1/models"),
      ({ text }) => text.includes('"priced"')
    )
  })

  afterAll(async () => {
    await gateway.stop()
    await database.close()
    await stub.stop()
  })

  const created = async (path: string, body: unknown, field: string): Promise<string> => {
    const reply = await gateway.admin("POST", path, body)
    assert.strictEqual(reply.status, 201, reply.text)
    return (reply.json as Record<string, string>)[field]!
  }

  const call = (key: string, more: Readonly<Record<string, unknown>> = {}, model = "priced") =>
    gateway.request("POST", "/v1/chat/completions", { token: key, body: chatBody(model, { max_tokens: 10, ...more }) })

  /** Calls one after another; the codes that came. */
  const codes = async (count: number, key: string, more: Readonly<Record<string, unknown>> = {}) => {
    const seen: Array<string> = []
    for (let index = 0; index < count; index++) {
      const reply = await call(key, more)
      seen.push(reply.status === 200 ? "ok" : (reply.json as { error: { code: string } }).error.code)
    }
    return seen
  }

  it("a team's budget holds over all its keys", async () => {
    const team = await created("/team/new", { team_alias: "spenders", max_budget: 0.025 }, "team_id")
    const keys = [await gateway.key({ team_id: team }), await gateway.key({ team_id: team })]
    assert.deepStrictEqual(await codes(1, keys[0]!.key), ["ok"])
    assert.deepStrictEqual(await codes(2, keys[1]!.key), ["ok", "budget_exceeded"])
    assert.deepStrictEqual(await codes(1, keys[0]!.key), ["budget_exceeded"])
  })

  it("a team's models restrict its keys, and a blocked team stops them", async () => {
    const team = await created("/team/new", { team_alias: "narrow", models: ["sandbox/chat"] }, "team_id")
    const { key } = await gateway.key({ team_id: team })
    assert.strictEqual((await call(key)).status, 404)
    assert.strictEqual((await call(key, {}, "sandbox/chat")).status, 200)
    await gateway.admin("POST", "/team/block", { team_id: team })
    await until(
      () => call(key, {}, "sandbox/chat"),
      ({ status }) => status === 401,
      1_000
    )
    await gateway.admin("POST", "/team/unblock", { team_id: team })
    await until(
      () => call(key, {}, "sandbox/chat"),
      ({ status }) => status === 200,
      1_000
    )
  })

  it("an organization's budget holds over its keys", async () => {
    const organization = await created(
      "/organization/new",
      { organization_alias: "acme", max_budget: 0.015 },
      "organization_id"
    )
    const { key } = await gateway.key({ organization_id: organization })
    assert.deepStrictEqual(await codes(2, key), ["ok", "budget_exceeded"])
  })

  it("a customer's budget holds over the calls made for it, and a blocked one stops them", async () => {
    const customer = await created("/customer/new", { user_id: "end-user-1", max_budget: 0.015 }, "customer_id")
    const { key } = await gateway.key()
    assert.deepStrictEqual(await codes(2, key, { user: "end-user-1" }), ["ok", "budget_exceeded"])
    assert.deepStrictEqual(await codes(1, key, { user: "end-user-2" }), ["ok"])
    assert.deepStrictEqual(await codes(1, key), ["ok"])
    await gateway.admin("POST", "/customer/update", { customer_id: customer, max_budget: null, blocked: true })
    await until(
      () => codes(1, key, { user: "end-user-1" }),
      ([code]) => code === "insufficient_permissions",
      1_500
    )
  })

  it("a budget tier binds a key with its limits", async () => {
    await created(
      "/budget/new",
      { budget_id: "bronze", max_budget: 0.025, budget_duration: "1mo", rpm_limit: 100 },
      "budget_id"
    )
    const { key } = await gateway.key({ budget_id: "bronze" })
    assert.deepStrictEqual(await codes(3, key), ["ok", "ok", "budget_exceeded"])
    const raised = await gateway.admin("POST", "/budget/update", { budget_id: "bronze", max_budget: 0.035 })
    assert.strictEqual(raised.status, 200, raised.text)
    await until(
      () => codes(1, key),
      ([code]) => code === "ok",
      2_000
    )
  })
})
