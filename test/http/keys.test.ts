import * as jose from "jose"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { type OpenDatabase, openDatabase } from "#test/support/acceptance.ts"
import { type Gateway, jwtSecret, type Reply, startGateway } from "#test/support/Gateway.ts"

interface KeyRow {
  readonly token: string
  readonly id: string
  readonly [field: string]: unknown
}

const administrator = (claims: Readonly<Record<string, unknown>>) =>
  new jose.SignJWT({ class: "tenant", ...claims })
    .setProtectedHeader({ alg: "HS256" })
    .setSubject("ada")
    .setExpirationTime("10 minutes")
    .sign(Buffer.from(jwtSecret))

const errorOf = (reply: Reply) => {
  const { error } = reply.json as { readonly error: Readonly<Record<string, unknown>> }
  return [reply.status, error["type"], error["code"], error["param"]]
}

const notFound = [404, "not_found_error", "resource_not_found", undefined]

describe("key operations", () => {
  let database: OpenDatabase
  let gateway: Gateway
  const post = (path: string, body: unknown) => gateway.admin("POST", path, body)
  const info = async (id: string) => (await gateway.admin("GET", `/key/info?key_id=${id}`)).json as KeyRow

  beforeAll(async () => {
    database = await openDatabase()
    gateway = await startGateway({ databaseUrl: database.url, env: { GATEWAY_TENANTS: "acme,other" } })
  })
  afterAll(async () => {
    await gateway.stop()
    await database.close()
  })

  it("generates, shows, lists, updates, regenerates and deletes a key", async () => {
    const made = await post("/key/generate", {
      key_name: "ci",
      key_alias: "ci-1",
      user_id: "u1",
      team_id: "",
      organization_id: "o1",
      max_budget: 12.000000001,
      models: ["a", "b", "a"],
      rpm_limit: 5,
      tpm_limit: null,
      expires: "2999-01-01",
      metadata: { cost_center: 7 },
      unknown_field: true
    })
    assert.strictEqual(made.status, 201)
    const { key, key_id: id, key_name: name } = made.json as Record<string, string>
    assert.match(key!, /^sk-[A-Za-z0-9_-]{43}$/)
    assert.strictEqual(name, "ci")
    const row = await info(id!)
    const { created_at: createdAt, updated_at: updatedAt, ...rest } = row
    assert.deepStrictEqual(rest, {
      token: `sk-...${key!.slice(-4)}`,
      id,
      key_id: id,
      key_name: "ci",
      key_alias: "ci-1",
      user_id: "u1",
      team_id: null,
      organization_id: "o1",
      tenant: "",
      max_budget: 12.000000001,
      models: ["a", "b"],
      rpm_limit: 5,
      tpm_limit: null,
      budget_id: null,
      expires: "2999-01-01T00:00:00.000Z",
      metadata: { cost_center: 7 },
      blocked: false,
      created_by: "master_key"
    } as unknown as typeof rest)
    assert.strictEqual(createdAt, updatedAt)
    assert.deepStrictEqual((await gateway.admin("GET", `/key/info?key=${key}`)).json, row)
    const listed = (await gateway.admin("GET", "/key/list?search=CI-1&page=1&page_size=5")).json
    assert.deepStrictEqual(listed, { data: [row], total: 1 })

    const updated = await post("/key/update", { key: id, key_alias: null, max_budget: null, team_id: "t", models: [] })
    assert.deepStrictEqual([updated.status, updated.json], [200, { updated: true }])
    const after = await info(id!)
    assert.deepStrictEqual(
      [after["key_alias"], after["max_budget"], after["team_id"], after["models"], after["rpm_limit"]],
      [null, null, "t", [], 5]
    )

    const renewed = await gateway.admin("POST", `/key/${key}/regenerate`)
    assert.strictEqual(renewed.status, 200)
    const fresh = (renewed.json as Record<string, string>)["key"]
    assert.notStrictEqual(fresh, key)
    assert.strictEqual((await gateway.request("GET", "/v1/models", { token: key! })).status, 401)
    assert.strictEqual((await gateway.request("GET", "/v1/models", { token: fresh! })).status, 200)

    assert.deepStrictEqual((await post("/key/delete", { keys: [fresh, "sk-no"] })).json, { deleted_keys: [id] })
    assert.deepStrictEqual((await post("/key/delete", { keys: [fresh] })).json, { deleted_keys: [] })
    assert.deepStrictEqual(errorOf(await gateway.admin("GET", `/key/info?key_id=${id}`)), notFound)
  })

  it("a blocked key is 401 for models and still shown here", async () => {
    const { id, key } = await gateway.key({ key_name: "b" })
    assert.strictEqual((await gateway.request("GET", "/v1/models", { token: key })).status, 200)
    assert.deepStrictEqual((await post("/key/block", { key })).json, { blocked: true })
    const refused = await gateway.request("GET", "/v1/models", { token: key })
    assert.deepStrictEqual(errorOf(refused), [401, "authentication_error", "invalid_session", undefined])
    assert.isTrue((await info(id))["blocked"])
    assert.deepStrictEqual((await post("/key/unblock", { key_id: id })).json, { unblocked: true })
    assert.strictEqual((await gateway.request("GET", "/v1/models", { token: key })).status, 200)
  })

  it("names the field that is wrong", async () => {
    const cases: ReadonlyArray<readonly [string, unknown, string, string]> = [
      ["/key/generate", { max_budget: -1 }, "invalid_value", "max_budget"],
      ["/key/generate", { max_budget: "5" }, "invalid_value", "max_budget"],
      ["/key/generate", { max_budget: 1e300 }, "invalid_value", "max_budget"],
      ["/key/generate", { rpm_limit: 1.5 }, "invalid_value", "rpm_limit"],
      ["/key/generate", { tpm_limit: 2 ** 31 }, "invalid_value", "tpm_limit"],
      ["/key/generate", { models: "a" }, "invalid_value", "models"],
      ["/key/generate", { models: ["a", 1] }, "invalid_value", "models.1"],
      ["/key/generate", { expires: "soon" }, "invalid_value", "expires"],
      ["/key/generate", { expires: "2026-02-31" }, "invalid_value", "expires"],
      ["/key/generate", { key_name: "x".repeat(257) }, "value_too_long", "key_name"],
      ["/key/generate", { key_name: "nul\0" }, "invalid_value", "key_name"],
      ["/key/generate", { key_alias: 7 }, "invalid_value", "key_alias"],
      ["/key/generate", { metadata: [] }, "invalid_value", "metadata"],
      ["/key/generate", { metadata: { a: { b: "nul\0" } } }, "invalid_value", "metadata"],
      ["/key/generate", { metadata: { a: "x".repeat(300_000) } }, "invalid_value", "metadata"],
      ["/key/generate", { tenant: "nobody" }, "invalid_value", "tenant"],
      ["/key/update", {}, "missing_field", "key"],
      ["/key/update", { key: "x", rpm_limit: "many" }, "invalid_value", "rpm_limit"],
      ["/key/delete", {}, "missing_field", "keys"],
      ["/key/delete", { keys: "x" }, "invalid_value", "keys"]
    ]
    for (const [path, body, code, param] of cases) {
      assert.deepStrictEqual(
        errorOf(await post(path, body)),
        [400, "validation_error", code, param],
        JSON.stringify(body)
      )
    }
    for (const query of ["page=0", "page=x", "page_size=501", "page=1.5"]) {
      const reply = await gateway.admin("GET", `/key/list?${query}`)
      assert.deepStrictEqual(errorOf(reply), [400, "validation_error", "invalid_value", query.split("=")[0]], query)
    }
  })

  it("finds nothing for what names no key, and breaks on none of it", async () => {
    const odd = ["", "sk-x", "%00", "%F0%9F", "'; DROP TABLE api_keys; --", "x".repeat(400)]
    for (const text of odd) {
      const reply = await gateway.admin("POST", `/key/${encodeURIComponent(text) || "-"}/regenerate`)
      assert.strictEqual(reply.status, 404, text)
      assert.isAtMost((await gateway.admin("GET", `/key/info?key=${text.slice(0, 200)}`)).status, 404)
    }
    for (const path of ["/key/block", "/key/unblock"]) {
      for (const body of [{}, { key: null }, { key: "sk-x" }, { key_id: "x" }]) {
        assert.deepStrictEqual(errorOf(await post(path, body)), notFound)
      }
    }
    assert.deepStrictEqual(errorOf(await gateway.admin("GET", "/key/info")), notFound)
    assert.deepStrictEqual(errorOf(await post("/key/update", { key: "sk-none" })), notFound)
  })

  it("keeps every caller to its own rows", async () => {
    const [acme, other, org, viewer] = await Promise.all([
      administrator({ role: "tenant_admin", tenant: "acme" }),
      administrator({ role: "tenant_admin", tenant: "other" }),
      administrator({ role: "org_admin", tenant: "acme", organization_id: "o1" }),
      administrator({ role: "viewer", tenant: "acme" })
    ])
    const as = (token: string, method: string, path: string, body?: unknown) =>
      gateway.request(method, path, { token, body })
    const made = await as(acme!, "POST", "/key/generate", { key_alias: "shared" })
    const { key, key_id: id } = made.json as Record<string, string>
    assert.strictEqual((await info(id!))["tenant"], "acme")
    for (const token of [other!, org!]) {
      assert.deepStrictEqual(errorOf(await as(token, "GET", `/key/info?key_id=${id}`)), notFound)
      assert.deepStrictEqual((await as(token, "GET", "/key/list")).json, { data: [], total: 0 })
      assert.deepStrictEqual(errorOf(await as(token, "POST", "/key/block", { key })), notFound)
      assert.deepStrictEqual(errorOf(await as(token, "POST", "/key/update", { key, key_name: "x" })), notFound)
      assert.deepStrictEqual(errorOf(await as(token, "POST", `/key/${key}/regenerate`)), notFound)
      const deleted = await as(token, "POST", "/key/delete", { keys: [key], key_aliases: ["shared"] })
      assert.deepStrictEqual(deleted.json, { deleted_keys: [] })
    }
    const own = await as(org!, "POST", "/key/generate", {})
    assert.strictEqual((await info((own.json as Record<string, string>)["key_id"]!))["organization_id"], "o1")
    const foreign = await as(org!, "POST", "/key/generate", { organization_id: "o2" })
    assert.deepStrictEqual(errorOf(foreign), [400, "validation_error", "invalid_value", "organization_id"])
    const crossing = await as(acme!, "POST", "/key/generate", { tenant: "other" })
    assert.deepStrictEqual(errorOf(crossing), [400, "validation_error", "invalid_value", "tenant"])
    const placed = await post("/key/generate", { tenant: "other" })
    assert.strictEqual((await info((placed.json as Record<string, string>)["key_id"]!))["tenant"], "other")
    assert.strictEqual((await as(viewer!, "GET", "/key/list")).status, 200)
    assert.strictEqual((await as(viewer!, "POST", "/key/generate", {})).status, 403)
    assert.strictEqual((await as(key!, "GET", "/key/list")).status, 401)
    assert.strictEqual((await as("nonsense", "GET", "/key/list")).status, 401)
  })
})
