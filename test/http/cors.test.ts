/** Browsers of configured origins: what they may read, on the routes that answer past the framework above all. */
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { chatBody, type OpenDatabase, openDatabase } from "#test/support/acceptance.ts"
import { type Gateway, startGateway } from "#test/support/Gateway.ts"

const here = "https://app.example"
const readable = ["x-request-id", "retry-after", "x-gateway-ratelimit-reset", "x-gateway-budget-remaining"]

let gateway: Gateway
let database: OpenDatabase

beforeAll(async () => {
  database = await openDatabase()
  gateway = await startGateway({
    databaseUrl: database.url,
    env: { GATEWAY_CORS_ORIGINS: `${here},https://other.example` }
  })
}, 90_000)

afterAll(async () => {
  await gateway.stop()
  await database.close()
})

const exposedBy = (headers: Headers): ReadonlyArray<string> =>
  (headers.get("access-control-expose-headers") ?? "").toLowerCase().split(", ")

describe("a browser of a configured origin", () => {
  it("reads whole answers, streams and refusals with their headers", async () => {
    const { key } = await gateway.key({ rpm_limit: 2 })
    const ask = (more: Record<string, unknown>) =>
      gateway.request("POST", "/v1/chat/completions", {
        token: key,
        headers: { origin: here },
        body: chatBody("sandbox/chat", more)
      })
    for (const [more, status] of [
      [{}, 200],
      [{ stream: true }, 200],
      [{}, 429]
    ] as const) {
      const reply = await ask(more)
      assert.strictEqual(reply.status, status)
      assert.strictEqual(reply.headers.get("access-control-allow-origin"), here)
      assert.includeMembers([...exposedBy(reply.headers)], readable)
      assert.include(reply.headers.get("vary"), "Origin")
    }
    const missing = await gateway.request("GET", "/nowhere", { headers: { origin: here } })
    assert.deepStrictEqual([missing.status, missing.headers.get("access-control-allow-origin")], [404, here])
  })

  it("may send what it asks to send", async () => {
    const reply = await gateway.request("OPTIONS", "/v1/chat/completions", {
      headers: {
        origin: here,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type,x-stainless-os"
      }
    })
    assert.strictEqual(reply.status, 204)
    assert.strictEqual(reply.headers.get("access-control-allow-headers"), "authorization,content-type,x-stainless-os")
    assert.strictEqual(reply.headers.get("access-control-allow-methods"), "GET, POST, PATCH, DELETE")
  })
})

describe("another origin", () => {
  it("is answered as without CORS, and finds no preflight", async () => {
    const headers = { origin: "https://evil.example", "access-control-request-method": "POST" }
    const reply = await gateway.request("GET", "/v1/models", { headers })
    assert.deepStrictEqual([reply.status, reply.headers.get("access-control-allow-origin")], [401, null])
    assert.strictEqual((await gateway.request("OPTIONS", "/v1/models", { headers })).status, 404)
  })
})
