/** A tenant that was taken out of GATEWAY_TENANTS: its rows are still there, its schema is not used any more. */
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { chatBody, type OpenDatabase, openDatabase } from "#test/support/acceptance.ts"
import { administratorToken } from "#test/support/administrators.ts"
import { type Gateway, type Reply, startGateway } from "#test/support/Gateway.ts"

let database: OpenDatabase
let gateway: Gateway
let stray: { readonly key: string; readonly id: string }
let userId: string

const codeOf = (reply: Reply) => [reply.status, (reply.json as { error?: { code?: string } }).error?.code]

beforeAll(async () => {
  database = await openDatabase()
  const before = await startGateway({ databaseUrl: database.url, env: { GATEWAY_TENANTS: "gone,stays" } })
  stray = await before.key({ tenant: "gone", key_alias: "stray" })
  const user = await before.request("POST", "/user/new", {
    token: await administratorToken({ tenant: "gone" }),
    body: { name: "somebody", user_email: "somebody@gone.example" }
  })
  userId = (user.json as { readonly id: string }).id
  await before.stop()
  gateway = await startGateway({ databaseUrl: database.url, env: { GATEWAY_TENANTS: "stays" } })
}, 120_000)

afterAll(async () => {
  await gateway.stop()
  await database.close()
})

describe("rows of a tenant that is not provisioned any more", () => {
  it.each([
    ["/key/block", () => ({ key_id: stray.id })],
    ["/key/unblock", () => ({ key_id: stray.id })],
    ["/key/update", () => ({ key: stray.id, rpm_limit: 1 })],
    ["/user/update", () => ({ user_id: userId, user_role: "admin" })],
    ["/user/delete", () => ({ user_id: userId })]
  ])("%s answers 404 to the master key and changes nothing", async (path, body) => {
    assert.deepStrictEqual(codeOf(await gateway.admin("POST", path, body())), [404, "resource_not_found"])
  })

  it("are named where an operation documents no 404", async () => {
    const reply = await gateway.admin("POST", "/key/delete", { keys: [stray.id] })
    assert.deepStrictEqual(codeOf(reply), [400, "invalid_state"])
    assert.include(reply.text, "'gone'")
    assert.deepStrictEqual(codeOf(await gateway.admin("POST", `/key/${stray.id}/regenerate`)), [
      404,
      "resource_not_found"
    ])
  })

  it("open no model: what such a key spent could not be recorded", async () => {
    const reply = await gateway.request("POST", "/v1/chat/completions", {
      token: stray.key,
      body: chatBody("sandbox/chat")
    })
    assert.deepStrictEqual(codeOf(reply), [401, "invalid_session"])
  })
})

describe("a signed token of a tenant that is not provisioned", () => {
  it.each([
    ["GET", "/key/list"],
    ["GET", "/model/list"],
    ["GET", "/config/list"],
    ["GET", "/management/dataset/list"],
    ["GET", "/management/pipelines/runs"],
    ["GET", "/management/eval_job/list"],
    ["GET", "/guardrail/logs"],
    ["GET", "/management/v1/groups/"],
    ["POST", "/tag/new"],
    ["POST", "/management/tiers"]
  ])("%s %s refuses it alike", async (method, path) => {
    const replies = await Promise.all(
      (["tenant_admin", "viewer"] as const).map(async (role) =>
        gateway.request(method, path, {
          token: await administratorToken({ tenant: "gone", role }),
          ...(method === "POST" ? { body: {} } : {})
        })
      )
    )
    for (const reply of replies) {
      assert.deepStrictEqual(codeOf(reply), [403, "insufficient_permissions"])
      assert.include(reply.text, "not provisioned")
    }
  })
})
