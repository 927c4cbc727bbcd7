/** `agent/chat`: the attested operator's call, its usage without a key. */
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { SignJWT } from "jose"
import { type OpenDatabase, openDatabase, registerModel, until } from "#test/support/acceptance.ts"
import { type Gateway, jwtSecret, startGateway } from "#test/support/Gateway.ts"
import { StubUpstream } from "#test/support/StubUpstream.ts"

let gateway: Gateway
let database: OpenDatabase
let stub: StubUpstream

const tokenOf = (claims: Record<string, unknown>) =>
  new SignJWT({ class: "tenant", tenant: "acme", ...claims })
    .setProtectedHeader({ alg: "HS256" })
    .setSubject("ada")
    .setExpirationTime("5m")
    .sign(new TextEncoder().encode(jwtSecret))

beforeAll(async () => {
  database = await openDatabase()
  stub = await StubUpstream.start()
  gateway = await startGateway({ databaseUrl: database.url, env: { GATEWAY_TENANTS: "acme" } })
  await registerModel(gateway, "up", stub.url, { cost_per_request: 0.01 })
}, 90_000)

afterAll(async () => {
  await gateway.stop()
  await database.close()
  await stub.stop()
})

const chat = (token: string | undefined, body: Record<string, unknown> = {}) =>
  gateway.request("POST", "/management/v1/agent/chat", {
    ...(token === undefined ? {} : { token }),
    body: { model: "up", messages: [{ role: "user", content: "Hello" }], ...body }
  })

const codeOf = (json: unknown) => (json as { error: { code: string } }).error.code

describe("agent/chat", () => {
  it("answers as the operator and records the usage in its tenant, without a key", async () => {
    const reply = await chat(await tokenOf({ role: "tenant_admin" }))
    assert.strictEqual(reply.status, 200, reply.text)
    assert.containsAllKeys(reply.json, ["id", "object", "model", "choices", "usage"])
    const rows = await until(
      () =>
        database.query<{ key_id: string | null; spend: string; operation: string }>(
          "SELECT key_id, trim_scale(spend)::text AS spend, operation FROM tenant_acme.spend_logs"
        ),
      (found) => found.length > 0
    )
    assert.deepStrictEqual(rows, [{ key_id: null, spend: "0.01", operation: "chat" }])
    const entries = await database.query<{ actor: string; action: string }>(
      "SELECT actor, action FROM tenant_acme.provenance_entries WHERE action LIKE 'gen_ai.%'"
    )
    assert.deepStrictEqual(entries, [{ actor: "user:ada", action: "gen_ai.chat" }])
  })

  it("calls tools", async () => {
    const tools = [{ type: "function", function: { name: "get_weather", parameters: { type: "object" } } }]
    const reply = await chat(await tokenOf({ role: "tenant_admin" }), {
      model: "sandbox/chat",
      tools,
      tool_choice: "required"
    })
    const { choices } = reply.json as { choices: Array<{ finish_reason: string }> }
    assert.strictEqual(choices[0]?.finish_reason, "tool_calls")
  })

  it("refuses streams, viewers, keys, strangers and unknown models", async () => {
    const admin = await tokenOf({ role: "tenant_admin" })
    const streamed = await chat(admin, { stream: true })
    assert.deepStrictEqual([streamed.status, codeOf(streamed.json)], [400, "unsupported_parameter"])
    assert.strictEqual((await chat(await tokenOf({ role: "viewer" }))).status, 403)
    assert.strictEqual((await chat((await gateway.key()).key)).status, 401)
    assert.strictEqual((await chat(undefined)).status, 401)
    const unknown = await chat(admin, { model: "nobody" })
    assert.deepStrictEqual([unknown.status, codeOf(unknown.json)], [404, "model_not_found"])
    const empty = await chat(admin, { messages: [] })
    assert.strictEqual(empty.status, 400)
  })
})
