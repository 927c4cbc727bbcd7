/** Every event that callbacks can be told of, provoked on started gateways and received as Standard Webhooks. */
import { createHmac } from "node:crypto"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { chatBody, type OpenDatabase, openDatabase, registerModel, until } from "#test/support/acceptance.ts"
import { administratorToken } from "#test/support/administrators.ts"
import { type Gateway, startGateway } from "#test/support/Gateway.ts"
import { StubUpstream } from "#test/support/StubUpstream.ts"
import { type ReceivedWebhook, WebhookReceiver } from "#test/support/WebhookReceiver.ts"

const secret = "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0"
const signingKey = Buffer.from("c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0", "base64")
const price = { cost_per_request: 0.01, input_cost_per_token: 0, output_cost_per_token: 0 }

interface Event {
  readonly id: string
  readonly type: string
  readonly timestamp: string
  readonly tenant: string | null
  readonly data: Readonly<Record<string, unknown>>
}

/** The event of a delivery whose signature and headers are in order. */
const verified = ({ body, headers }: ReceivedWebhook): Event => {
  const id = String(headers["webhook-id"])
  const timestamp = String(headers["webhook-timestamp"])
  const signature = createHmac("sha256", signingKey).update(`${id}.${timestamp}.${body}`).digest("base64")
  assert.strictEqual(headers["webhook-signature"], `v1,${signature}`)
  assert.strictEqual(headers["content-type"], "application/json")
  assert.isBelow(Math.abs(Date.now() / 1000 - Number(timestamp)), 60)
  const event = JSON.parse(body) as Event
  assert.deepStrictEqual(Object.keys(event), ["id", "type", "timestamp", "tenant", "data"])
  assert.strictEqual(event.id, id)
  assert.match(event.timestamp, /^\d{4}-\d\d-\d\dT[\d:.]+Z$/)
  return event
}

describe("callbacks of two gateways on one PostgreSQL", () => {
  let stub: StubUpstream
  let receiver: WebhookReceiver
  let database: OpenDatabase
  let gateways: ReadonlyArray<Gateway> = []
  let organization: string

  const events = (path = "/all") => receiver.received.filter((webhook) => webhook.path === path).map(verified)
  /** The first event of a type that is about something. */
  const heard = async (type: string, about: (data: Event["data"]) => boolean = () => true, path = "/all") => {
    const found = await until(
      async () => events(path).filter((event) => event.type === type && about(event.data)),
      ({ length }) => length > 0
    )
    return found[0]!
  }
  const count = (type: string, about: (data: Event["data"]) => boolean) =>
    events().filter((event) => event.type === type && about(event.data)).length

  const created = async (path: string, body: unknown) => {
    const reply = await gateways[0]!.admin("POST", path, body)
    assert.oneOf(reply.status, [200, 201], reply.text)
    return reply.json as Readonly<Record<string, string>>
  }

  const call = (gateway: Gateway, token: string, model = "priced", more: Readonly<Record<string, unknown>> = {}) =>
    gateway.request("POST", "/v1/chat/completions", { token, body: chatBody(model, { max_tokens: 10, ...more }) })

  const known = (model: string) =>
    Promise.all(
      gateways.map((gateway) =>
        until(
          () => gateway.admin("GET", "/v1/models"),
          ({ text }) => text.includes(`"${model}"`)
        )
      )
    )

  beforeAll(async () => {
    stub = await StubUpstream.start()
    receiver = await WebhookReceiver.start()
    database = await openDatabase()
    const options = {
      databaseUrl: database.url,
      env: { GATEWAY_ALLOW_PRIVATE_CALLBACKS: "true", GATEWAY_TENANTS: "acme" }
    }
    gateways = [await startGateway(options), await startGateway(options)]
    organization = (await created("/organization/new", { organization_alias: "Research" }))["organization_id"]!
    await created("/callback/new", { url: `${receiver.url}/all`, secret })
    await registerModel(gateways[0]!, "priced", stub.url, price)
    await known("priced")
  })

  afterAll(async () => {
    await Promise.all(gateways.map((gateway) => gateway.stop()))
    await database.close()
    await receiver.stop()
    await stub.stop()
  })

  it("tell what becomes of a key, with its organization", async () => {
    const gateway = gateways[0]!
    const { id, key } = await gateway.key({ key_alias: "told", organization_id: organization })
    await created("/key/update", { key, rpm_limit: 7 })
    await created("/key/block", { key_id: id })
    await created("/key/unblock", { key_id: id })
    const renewed = await created(`/key/${key}/regenerate`, {})
    await created("/key/delete", { key_id: id })
    const of = (data: Event["data"]) => data["resource_id"] === id
    for (const action of ["created", "updated", "blocked", "unblocked", "regenerated", "deleted"]) {
      const event = await heard(`key.${action}`, of)
      assert.deepInclude(event.data, { actor: "master_key", resource_type: "key", organization_id: organization })
      assert.isString(event.data["request_id"])
      assert.strictEqual(event.tenant, "")
    }
    assert.deepInclude((await heard("key.created", of)).data, { key_alias: "told" })
    assert.deepInclude((await heard("key.updated", of)).data, { changed: { rpm_limit: 7 } })
    for (const { body } of receiver.received) assert.notInclude(body, key)
    for (const { body } of receiver.received) assert.notInclude(body, String(renewed["key"]))
  })

  it("of an organization hear of its keys to their end, and of nobody else's", async () => {
    const gateway = gateways[0]!
    const as = async (claims: Parameters<typeof administratorToken>[0], path: string, body: unknown) => {
      const reply = await gateway.request("POST", path, { token: await administratorToken(claims), body })
      assert.oneOf(reply.status, [200, 201], reply.text)
      return reply.json as Readonly<Record<string, string>>
    }
    const acme = { role: "tenant_admin", tenant: "acme" } as const
    const { organization_id: id } = await as(acme, "/organization/new", { organization_alias: "Sales" })
    const sales = { role: "org_admin", tenant: "acme", organization_id: String(id) } as const
    await as(sales, "/callback/new", { url: `${receiver.url}/sales`, secret, events: ["key.created", "key.deleted"] })
    const other = await as(acme, "/key/generate", { key_alias: "other" })
    const own = await as(sales, "/key/generate", { key_alias: "own" })
    await as(acme, "/key/delete", { key_id: other["key_id"] })
    await as(sales, "/key/block", { key_id: own["key_id"] })
    await as(sales, "/key/delete", { key_id: own["key_id"] })
    const of = (data: Event["data"]) => data["resource_id"] === own["key_id"]
    assert.strictEqual((await heard("key.deleted", of, "/sales")).tenant, "acme")
    await heard("key.created", of, "/sales")
    await heard("key.deleted", (data) => data["resource_id"] === other["key_id"])
    assert.deepStrictEqual(
      events("/sales")
        .map(({ data, type }) => [type, data["resource_id"]])
        .sort(),
      [
        ["key.created", own["key_id"]],
        ["key.deleted", own["key_id"]]
      ]
    )
  })

  it("tell once of a budget that refuses calls, whichever gateways they came to", async () => {
    const { id, key } = await gateways[0]!.key({ max_budget: 0.015, organization_id: organization })
    const replies = await Promise.all(Array.from({ length: 20 }, (_, index) => call(gateways[index % 2]!, key)))
    assert.include(
      replies.map(({ status }) => status),
      429
    )
    const of = (data: Event["data"]) => data["resource_id"] === id
    const event = await heard("budget.exceeded", of)
    assert.deepInclude(event.data, {
      owner: "key",
      max_budget: "0.015",
      window_start: null,
      reset_at: null,
      resource_type: "key",
      actor: "gateway",
      organization_id: organization
    })
    // Another budget's event comes behind whatever is still on its way.
    const other = await gateways[1]!.key({ max_budget: 0 })
    await Promise.all(gateways.map((gateway) => call(gateway, other.key)))
    await heard("budget.exceeded", (data) => data["resource_id"] === other.id)
    assert.strictEqual(count("budget.exceeded", of), 1)
  })

  it("tell of a soft budget and of the blocking guardrail, whose findings stay here", async () => {
    const gateway = gateways[0]!
    const { team_id: team } = await created("/team/new", { team_alias: "soft", soft_budget: 0.005 })
    const { key } = await gateway.key({ team_id: team })
    assert.strictEqual((await call(gateway, key)).status, 200)
    const soft = await heard("budget.soft_exceeded")
    assert.deepInclude(soft.data, { owner: "team", resource_id: team, soft_budget: "0.005", spent: "0.01" })

    const config = { phrases: ["Zanzibar"] }
    const guardrail = await created("/guardrail/new", {
      guardrail_name: "no islands",
      guardrail_type: "deny_list",
      mode: "block",
      config
    })
    const own = await gateway.key({ organization_id: organization })
    const blocked = await until(
      () => call(gateway, own.key, "priced", { messages: [{ role: "user", content: "To Zanzibar!" }] }),
      ({ status }) => status !== 200
    )
    const event = await heard("guardrail.blocked")
    assert.deepInclude(event.data, {
      guardrail_name: "no islands",
      key_id: own.id,
      model: "priced",
      operation: "chat",
      organization_id: organization,
      stage: "pre",
      status: "blocked"
    })
    assert.strictEqual(event.data["request_id"], blocked.headers.get("x-request-id"))
    assert.notInclude(JSON.stringify(event), "Zanzibar")
    await created("/guardrail/delete", { guardrail_id: guardrail["guardrail_id"] })
  })

  it("tell once of a deployment that is taken out on both gateways, and when it is back", async () => {
    const deployment = await registerModel(gateways[0]!, "shaky", stub.url, price, { max_retries: 0 })
    await known("shaky")
    const { key } = await gateways[0]!.key()
    stub.script("shaky", ...Array.from({ length: 10 }, () => ({ status: 500 })), {})
    // Five failures in a row open a circuit.
    for (let n = 0; n < 5; n++) await Promise.all(gateways.map((gateway) => call(gateway, key, "shaky")))
    const of = (data: Event["data"]) => data["deployment_id"] === deployment
    const down = await heard("model.unhealthy", of)
    assert.deepStrictEqual(down.data, {
      deployment_id: deployment,
      model: "shaky",
      provider: "openai",
      upstream_model: "shaky"
    })
    assert.isNull(down.tenant)
    await until(
      () => call(gateways[0]!, key, "shaky"),
      ({ status }) => status === 200,
      20_000
    )
    assert.deepStrictEqual((await heard("model.recovered", of)).data, down.data)
    assert.strictEqual(count("model.unhealthy", of), 1)
  })

  it("tell once of a model that nobody knows the price of, and never of a price of 0", async () => {
    await registerModel(gateways[0]!, "free-model", stub.url, { input_cost_per_token: 0, output_cost_per_token: 0 })
    await registerModel(gateways[0]!, "priceless", stub.url)
    const event = await heard("model.unpriced")
    assert.deepStrictEqual(event.data, { model: "priceless" })
    assert.isNull(event.tenant)
    await known("priceless")
    const { key } = await gateways[0]!.key()
    for (const gateway of gateways) assert.strictEqual((await call(gateway, key, "priceless")).status, 200)
    await registerModel(gateways[0]!, "priceless too", stub.url)
    await heard("model.unpriced", ({ model }) => model === "priceless too")
    assert.strictEqual(
      count("model.unpriced", ({ model }) => model === "priceless"),
      1
    )
    assert.strictEqual(
      count("model.unpriced", ({ model }) => model === "free-model"),
      0
    )
  })

  it("tell of a budget that refuses what a guardrail asks of a model", async () => {
    await registerModel(gateways[0]!, "judge", stub.url, price)
    await known("judge")
    const guardrail = await created("/guardrail/new", {
      guardrail_name: "judged",
      guardrail_type: "llm_judge",
      mode: "log",
      config: { model: "judge", criteria: "Nothing about islands." }
    })
    const { id, key } = await gateways[0]!.key({ max_budget: 0.000001 })
    const of = (data: Event["data"]) => data["resource_id"] === id
    // The call itself is free: only the judge does not fit.
    await until(
      () => call(gateways[0]!, key, "free-model"),
      () => count("budget.exceeded", of) > 0
    )
    assert.deepInclude((await heard("budget.exceeded", of)).data, { resource_type: "key" })
    assert.strictEqual(count("budget.exceeded", of), 1)
    await created("/guardrail/delete", { guardrail_id: guardrail["guardrail_id"] })
  })
})
