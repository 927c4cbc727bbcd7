import * as jose from "jose"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { type OpenDatabase, openDatabase } from "#test/support/acceptance.ts"
import { type Gateway, jwtSecret, type Reply, startGateway } from "#test/support/Gateway.ts"

type Row = Readonly<Record<string, unknown>>

const errorOf = (reply: Reply) => {
  const { error } = reply.json as { readonly error: Row }
  return [reply.status, error["type"], error["code"], error["param"]]
}

const notFound = [404, "not_found_error", "resource_not_found", undefined]
const secret = "sk-upstream-0123456789abcdef0123456789"

const tenantAdministrator = () =>
  new jose.SignJWT({ class: "tenant", role: "tenant_admin", tenant: "" })
    .setProtectedHeader({ alg: "HS256" })
    .setSubject("ada")
    .setExpirationTime("10 minutes")
    .sign(Buffer.from(jwtSecret))

describe("model and credential operations", () => {
  let database: OpenDatabase
  let gateway: Gateway
  const post = (path: string, body: unknown) => gateway.admin("POST", path, body)
  const listOf = async (path: string) => ((await gateway.admin("GET", path)).json as { data: ReadonlyArray<Row> }).data

  beforeAll(async () => {
    database = await openDatabase()
    gateway = await startGateway({ databaseUrl: database.url, env: { MISTRAL_API_KEY: "", OPENAI_BASE_URL: "" } })
  })
  afterAll(async () => {
    await gateway.stop()
    await database.close()
  })

  it("starts with the sandbox's models", async () => {
    const names = (await listOf("/model/list")).map((row) => row["name"]).toSorted()
    assert.strictEqual(names.length, 7)
    assert.include(names, "sandbox/chat")
  })

  it("registers, shows, lists, updates and removes a model", async () => {
    const made = await post("/model/new", {
      model_name: "fast",
      upstream_params: { model: "openai/gpt-x", api_base: "http://127.0.0.1:9/v1", api_key: secret },
      model_info: { input_cost_per_token: 0.000001, lifecycle: "preview" }
    })
    assert.strictEqual(made.status, 201)
    const { model_id: id } = made.json as Record<string, string>
    const byId = (await gateway.admin("GET", `/model/info?model_id=${id}`)).json as Row
    assert.deepStrictEqual((await gateway.admin("GET", "/model/info?model_name=fast")).json, byId as never)
    assert.deepStrictEqual(
      [byId["id"], byId["name"], byId["model_name"], byId["gateway_params"]],
      [id, "fast", "fast", { model: "openai/gpt-x", api_base: "http://127.0.0.1:9/v1", api_key: "sk-u...6789" }]
    )
    const listed = (await listOf("/model/list")).find((row) => row["id"] === id)!
    assert.deepInclude(listed, {
      provider: "openai",
      health: "healthy",
      response_time_ms: null,
      last_checked_at: null,
      lifecycle: "preview",
      is_self_hosted: true,
      priced: true
    })
    assert.deepStrictEqual((await post("/model/update", { model_id: id, gateway_params: { weight: 3 } })).json, {
      updated: true
    })
    const after = (await gateway.admin("GET", `/model/info?model_id=${id}`)).json as Row
    assert.deepInclude(after["gateway_params"] as Row, { weight: 3, model: "openai/gpt-x" })
    assert.deepStrictEqual((await post("/model/delete", { model_id: id })).json, { deleted: true })
    for (const reply of [
      await post("/model/delete", { model_id: id }),
      await post("/model/update", { model_id: "x" }),
      await gateway.admin("GET", "/model/info"),
      await gateway.admin("GET", `/model/info?model_id=${id}`)
    ]) {
      assert.deepStrictEqual(errorOf(reply), notFound)
    }
  })

  it("names the field of a model that is wrong", async () => {
    const cases: ReadonlyArray<readonly [unknown, string, string]> = [
      [{}, "missing_field", "model_name"],
      [{ model_name: "" }, "invalid_value", "model_name"],
      [{ model_name: "x", gateway_params: "y" }, "invalid_value", "gateway_params"],
      [{ model_name: "x", upstream_params: { model: 5 } }, "invalid_value", "upstream_params.model"],
      [{ model_name: "x", gateway_params: { api_base: "ftp://x" } }, "invalid_value", "gateway_params.api_base"],
      [
        { model_name: "x", model_info: { input_cost_per_token: -1 } },
        "invalid_value",
        "model_info.input_cost_per_token"
      ],
      [{ model_name: "x", model_info: { cost_per_image: "free" } }, "invalid_value", "model_info.cost_per_image"]
    ]
    for (const [body, code, param] of cases) {
      const reply = await post("/model/new", body)
      assert.deepStrictEqual(errorOf(reply), [400, "validation_error", code, param], JSON.stringify(body))
    }
  })

  it("stores, masks, renames and removes a credential", async () => {
    const made = await post("/credential/new", { credential_name: "main", credential_info: { api_key: secret, n: 1 } })
    assert.strictEqual(made.status, 201)
    const { credential_id: id } = made.json as Record<string, string>
    const [row] = await listOf("/credential/list")
    assert.deepInclude(row, { id, credential_name: "main", credential_info: { api_key: "sk-u...6789", n: 1 } })
    assert.strictEqual(row?.["created_by"], "master_key")
    const again = await post("/credential/new", { credential_name: "main", credential_info: {} })
    assert.deepStrictEqual(errorOf(again), [400, "invalid_request_error", "already_exists", "credential_name"])
    const change = {
      credential_id: id,
      credential_name: "renamed",
      credential_values: '{"api_key":"short","region":"eu"}'
    }
    assert.deepStrictEqual((await post("/credential/update", change)).json, { updated: true })
    assert.deepInclude((await listOf("/credential/list"))[0], {
      credential_name: "renamed",
      credential_info: { api_key: "****", n: 1, region: "****" }
    })
    await post("/credential/update", { credential_name: "renamed", credential_values: secret })
    assert.deepInclude((await listOf("/credential/list"))[0]?.["credential_info"] as Row, { api_key: "sk-u...6789" })
    assert.deepStrictEqual(errorOf(await post("/credential/update", { credential_id: "main" })), notFound)
    assert.deepStrictEqual(errorOf(await post("/credential/delete", { credential_name: "main" })), notFound)
    const none = await post("/credential/delete", {})
    assert.deepStrictEqual(errorOf(none), [400, "validation_error", "missing_field", "credential_id"])
    assert.deepStrictEqual((await post("/credential/delete", { credential_name: "renamed" })).json, { deleted: true })
    assert.notInclude(gateway.output, "upstream-0123")
  })

  it("knows providers by preset, and provisions none without a key", async () => {
    const presets = await listOf("/credential/provider-presets")
    assert.deepInclude(presets, {
      name: "anthropic",
      api_base: "https://api.anthropic.com",
      custom_llm_provider: "anthropic",
      api_key_header: "x-api-key",
      detected: false
    } as Row)
    const provision = (provider: unknown) => post("/credential/provision-from-env", { provider })
    assert.deepStrictEqual(errorOf(await provision("nobody")), notFound)
    assert.deepStrictEqual(errorOf(await provision("mistral")), [400, "validation_error", "invalid_value", "provider"])
    assert.deepStrictEqual(errorOf(await provision(undefined)), [400, "validation_error", "missing_field", "provider"])
  })

  it("lets a tenant's administrator read models and nothing more", async () => {
    const token = await tenantAdministrator()
    const as = (method: string, path: string, body?: unknown) => gateway.request(method, path, { token, body })
    assert.strictEqual((await as("GET", "/model/list")).status, 200)
    assert.strictEqual((await as("GET", "/model/info?model_name=sandbox/chat")).status, 200)
    for (const [method, path] of [
      ["POST", "/model/new"],
      ["POST", "/model/update"],
      ["POST", "/model/delete"],
      ["GET", "/credential/list"],
      ["GET", "/credential/provider-presets"],
      ["POST", "/credential/new"],
      ["POST", "/credential/update"],
      ["POST", "/credential/delete"],
      ["POST", "/credential/provision-from-env"]
    ] as const) {
      assert.strictEqual((await as(method, path, method === "POST" ? {} : undefined)).status, 403, path)
    }
  })
})
