import * as jose from "jose"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { type OpenDatabase, openDatabase } from "#test/support/acceptance.ts"
import { type Gateway, jwtSecret, type Reply, startGateway } from "#test/support/Gateway.ts"

type Body = Readonly<Record<string, unknown>>

const administrator = (claims: Body) =>
  new jose.SignJWT({ class: "tenant", ...claims })
    .setProtectedHeader({ alg: "HS256" })
    .setSubject("ada")
    .setExpirationTime("10 minutes")
    .sign(Buffer.from(jwtSecret))

const errorOf = (reply: Reply) => {
  const { error } = reply.json as { readonly error: Body }
  return [reply.status, error["type"], error["code"], error["param"]]
}

const notFound = [404, "not_found_error", "resource_not_found", undefined]

describe("people and tiers", () => {
  let database: OpenDatabase
  let gateway: Gateway
  const post = (path: string, body: unknown) => gateway.admin("POST", path, body)
  const get = async (path: string) => (await gateway.admin("GET", path)).json as Body
  const make = async (path: string, body: Body, field: string): Promise<string> => {
    const reply = await post(path, body)
    assert.strictEqual(reply.status, 201, reply.text)
    return (reply.json as Record<string, string>)[field]!
  }
  const chat = (key: string, body: Body = {}) =>
    gateway.request("POST", "/v1/chat/completions", {
      token: key,
      body: { model: "sandbox/chat", messages: [{ role: "user", content: "hi" }], max_tokens: 5, ...body }
    })

  beforeAll(async () => {
    database = await openDatabase()
    gateway = await startGateway({ databaseUrl: database.url, env: { GATEWAY_TENANTS: "acme,other" } })
  })
  afterAll(async () => {
    await gateway.stop()
    await database.close()
  })

  it("makes, shows, changes and softly deletes a user", async () => {
    const made = await post("/user/new", { name: "Ada", user_email: "ada@x.org", user_role: "developer" })
    assert.strictEqual(made.status, 201)
    const { id, user_email: email } = made.json as Record<string, string>
    assert.strictEqual(email, "ada@x.org")
    assert.deepStrictEqual(errorOf(await post("/user/new", { name: "A", user_email: "ADA@x.org" })), [
      400,
      "invalid_request_error",
      "already_exists",
      "user_email"
    ])
    assert.deepStrictEqual((await post("/user/update", { user_id: id, user_role: null, max_budget: 2.5 })).json, {
      updated: true
    })
    const { created_at: createdAt, updated_at: updatedAt, ...row } = await get("/user/info?user_email=ada@x.org")
    assert.deepStrictEqual(row, {
      id,
      user_id: id,
      user_email: "ada@x.org",
      user_role: "user",
      name: "Ada",
      organization_id: null,
      team_id: null,
      max_budget: 2.5,
      soft_budget: null,
      rpm_limit: null,
      tpm_limit: null,
      models: [],
      budget_id: null
    })
    assert.isTrue(String(updatedAt) >= String(createdAt))
    const list = await get("/user/list?user_role=user&page=1&page_size=1")
    assert.deepStrictEqual(
      (list["data"] as ReadonlyArray<Body>).map((user) => user["id"]),
      [id]
    )
    assert.deepStrictEqual((await post("/user/delete", { user_id: id })).json, { deleted: true })
    assert.deepStrictEqual(errorOf(await gateway.admin("GET", `/user/info?user_id=${id}`)), notFound)
    assert.deepStrictEqual(errorOf(await gateway.admin("GET", "/user/info")), notFound)
  })

  it("makes teams in organizations, with members", async () => {
    const organization = await make(
      "/organization/new",
      { organization_alias: "Org", models: ["sandbox/chat"], max_budget: 10 },
      "organization_id"
    )
    const team = await make(
      "/team/new",
      { team_alias: "Team", organization_id: organization, max_budget: null, rpm_limit: 4 },
      "team_id"
    )
    const user = await make("/user/new", { name: "U" }, "id")
    assert.deepStrictEqual((await post("/team/member_add", { team_id: team, user_id: user, role: "admin" })).json, {
      added: true
    })
    assert.deepStrictEqual(
      (await post("/organization/member_add", { organization_id: organization, user_id: user })).json,
      { added: true }
    )
    assert.deepStrictEqual(errorOf(await post("/team/member_add", { team_id: team })), notFound)
    const { created_at: createdAt, ...row } = await get(`/team/info?team_id=${team}`)
    assert.match(String(createdAt), /^\d{4}-\d\d-\d\dT.*Z$/)
    assert.deepStrictEqual(row, {
      id: team,
      team_id: team,
      alias: "Team",
      name: "Team",
      team_alias: "Team",
      org_id: organization,
      org_name: "Org",
      organization_id: organization,
      member_count: 1,
      spend: 0,
      total_spend: 0,
      current_spend: 0,
      blocked: false,
      status: "active",
      max_budget: null,
      soft_budget: null,
      rpm_limit: 4,
      tpm_limit: null,
      models: [],
      budget_id: null
    })
    assert.strictEqual((await get(`/user/info?user_id=${user}`))["team_id"], team)
    const updated = await post("/organization/update", {
      organization_id: organization,
      organization_alias: "Renamed",
      metadata: { plan: { seats: 3 } }
    })
    assert.deepStrictEqual(updated.json, { updated: true })
    assert.deepInclude(await get(`/organization/info?organization_id=${organization}`), {
      id: organization,
      organization_alias: "Renamed",
      alias: "Renamed",
      metadata: { plan: { seats: 3 } },
      max_budget: 10,
      member_count: 1,
      team_count: 1,
      models: ["sandbox/chat"]
    })
    assert.deepStrictEqual((await post("/team/member_delete", { team_id: team, user_id: user })).json, {
      removed: true
    })
    const teams = await get(`/team/list?organization_id=${organization}`)
    assert.strictEqual((teams["data"] as ReadonlyArray<unknown>).length, 1)
    assert.deepStrictEqual((await post("/team/delete", { team_id: team })).json, { deleted: true })
    assert.deepStrictEqual((await post("/organization/delete", { organization_id: organization })).json, {
      deleted: true
    })
    assert.deepStrictEqual(
      errorOf(await gateway.admin("GET", `/organization/info?organization_id=${organization}`)),
      notFound
    )
  })

  it("makes budgets and shows when they start anew", async () => {
    assert.strictEqual(
      await make("/budget/new", { budget_id: "b1", max_budget: 3, budget_duration: "1mo", rpm_limit: 6 }, "budget_id"),
      "b1"
    )
    assert.deepStrictEqual(errorOf(await post("/budget/new", { budget_id: "b1" })), [
      400,
      "invalid_request_error",
      "already_exists",
      "budget_id"
    ])
    await post("/budget/update", { budget_id: "b1", soft_budget: 1, rpm_limit: null })
    const now = new Date()
    const { created_at: createdAt, ...row } = await get("/budget/info?budget_id=b1")
    assert.isString(createdAt)
    assert.deepStrictEqual(row, {
      id: "b1",
      budget_id: "b1",
      name: "unnamed",
      max_budget: 3,
      soft_budget: 1,
      duration: "1mo",
      budget_duration: "1mo",
      rpm_limit: null,
      tpm_limit: null,
      reset_at: new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + 1, 1)).toISOString(),
      current_spend: 0
    })
    const team = await make("/team/new", { team_alias: "T", budget_id: "b1" }, "team_id")
    assert.deepStrictEqual(errorOf(await post("/budget/delete", { budget_id: "b1" })), [
      400,
      "invalid_request_error",
      "invalid_state",
      "budget_id"
    ])
    await post("/team/update", { team_id: team, budget_id: null })
    assert.deepStrictEqual((await post("/budget/delete", { budget_id: "b1" })).json, { deleted: true })
  })

  it("puts plan tiers and applies them, to the byte alike each time", async () => {
    const tier = { external_id: "gold", slug: "gold", max_budget: 100, rpm_limit: 50, models: ["sandbox/chat"] }
    const first = await post("/management/tiers", tier)
    const again = await post("/management/tiers", tier)
    assert.deepStrictEqual([first.status, again.status], [201, 200])
    assert.strictEqual(again.text, first.text)
    assert.deepInclude(first.json as object, { ...tier, soft_budget: null, tpm_limit: null })

    const id = await make("/organization/new", { organization_alias: "O", soft_budget: 7 }, "organization_id")
    const { id: keyId } = await gateway.key({ organization_id: id, rpm_limit: 1 })
    const apply = (body: Body) => post(`/management/organizations/${id}/apply_tier`, body)
    const body = { external_id: "gold", override: { tpm_limit: 900 }, organization_id: "ignored" }
    const applied = await apply(body)
    assert.deepStrictEqual(applied.json, {
      organization_id: id,
      external_id: "gold",
      max_budget: 100,
      soft_budget: 7,
      rpm_limit: 50,
      tpm_limit: 900,
      models: ["sandbox/chat"]
    })
    const key = async () => (await gateway.admin("GET", `/key/info?key_id=${keyId}`)).text
    const before = await key()
    assert.deepInclude(JSON.parse(before), { rpm_limit: 50, tpm_limit: 900 })
    assert.strictEqual((await apply(body)).text, applied.text)
    assert.strictEqual(await key(), before)
    const unknown = await apply({ external_id: "no such tier" })
    assert.deepInclude(unknown.json as object, { max_budget: 100, soft_budget: 7 })
    assert.deepStrictEqual(errorOf(await apply({ external_id: "gold", override: { max_budget: "much" } })), [
      400,
      "validation_error",
      "invalid_value",
      "override.max_budget"
    ])
    assert.deepStrictEqual(
      errorOf(await post("/management/organizations/none/apply_tier", { external_id: "gold" })),
      notFound
    )
    const token = await administrator({ role: "tenant_admin", tenant: "acme" })
    for (const path of ["/management/tiers", `/management/organizations/${id}/apply_tier`]) {
      assert.deepStrictEqual(errorOf(await gateway.request("POST", path, { token, body: { external_id: "x" } })), [
        403,
        "permission_error",
        "control_plane_only",
        undefined
      ])
    }
  })

  it("a blocked team stops its calls, and its budget binds them", async () => {
    const team = await make("/team/new", { team_alias: "T" }, "team_id")
    const { key } = await gateway.key({ team_id: team })
    assert.strictEqual((await chat(key)).status, 200)
    assert.deepStrictEqual((await post("/team/block", { team_id: team })).json, { blocked: true })
    assert.deepStrictEqual(errorOf(await chat(key)), [401, "authentication_error", "invalid_session", undefined])
    assert.strictEqual((await get(`/team/info?team_id=${team}`))["status"], "blocked")
    assert.deepStrictEqual((await post("/team/unblock", { team_id: team })).json, { unblocked: true })
    assert.strictEqual((await chat(key)).status, 200)
    await post("/team/update", { team_id: team, max_budget: 0 })
    assert.deepStrictEqual(errorOf(await chat(key)), [429, "rate_limit_error", "budget_exceeded", undefined])
    await post("/team/update", { team_id: team, max_budget: null, models: ["another"] })
    assert.deepStrictEqual(errorOf(await chat(key)), [404, "not_found_error", "model_not_found", "model"])
    await post("/team/update", { team_id: team, models: null, rpm_limit: 1 })
    const statuses = [(await chat(key)).status, (await chat(key)).status]
    assert.deepStrictEqual(statuses, [200, 429])
    await post("/team/delete", { team_id: team })
    assert.strictEqual((await chat(key)).status, 401)
  })

  it("shows what a team and a customer have spent", async () => {
    const model = await make(
      "/model/new",
      {
        model_name: "priced",
        upstream_params: { model: "sandbox/chat" },
        model_info: { input_cost_per_token: 0.001, output_cost_per_token: 0.002 }
      },
      "model_id"
    )
    await make("/budget/new", { budget_id: "daily", max_budget: 1000, budget_duration: "1d" }, "budget_id")
    const team = await make("/team/new", { team_alias: "Spender", budget_id: "daily" }, "team_id")
    const customer = await make("/customer/new", { user_id: "end-1", alias: "End One" }, "customer_id")
    const { key } = await gateway.key({ team_id: team })
    assert.strictEqual((await chat(key, { model: "priced", user: "end-1" })).status, 200)
    const { current_spend: current, total_spend: total } = await get(`/team/info?team_id=${team}`)
    assert.isAbove(Number(total), 0)
    assert.strictEqual(current, total)
    assert.strictEqual((await get("/budget/info?budget_id=daily"))["current_spend"], total)
    const rows = (await get("/customer/list"))["data"] as ReadonlyArray<Body>
    const row = rows.find(({ id }) => id === customer)
    assert.deepInclude(row, {
      customer_id: customer,
      end_user_id: "end-1",
      external_user_id: "end-1",
      end_user_name: "End One",
      alias: "End One",
      blocked: false,
      spend: total,
      default_model: null,
      allowed_model_region: null
    })
    await post("/model/delete", { model_id: model })
  })

  it("a blocked customer stops its calls, and its limits bind them", async () => {
    const { key } = await gateway.key()
    const id = await make("/customer/new", { user_id: "end-2" }, "customer_id")
    const call = () => chat(key, { user: "end-2" })
    assert.strictEqual((await call()).status, 200)
    await post("/customer/update", { customer_id: id, blocked: true })
    assert.deepStrictEqual(errorOf(await call()), [403, "permission_error", "insufficient_permissions", "user"])
    assert.strictEqual((await chat(key, { user: "end-3" })).status, 200)
    assert.strictEqual((await chat(key)).status, 200)
    await post("/customer/update", { customer_id: "end-2", blocked: false, max_budget: 0 })
    assert.deepStrictEqual(errorOf(await call()), [429, "rate_limit_error", "budget_exceeded", undefined])
    await post("/customer/update", { customer_id: "end-2", max_budget: null, models: ["another"] })
    assert.deepStrictEqual(errorOf(await call()), [404, "not_found_error", "model_not_found", "model"])
    await post("/customer/delete", { customer_id: "end-2" })
    assert.strictEqual((await call()).status, 200)
  })

  it("a soft budget leaves its event once and refuses nothing", async () => {
    const model = await make(
      "/model/new",
      { model_name: "soft", upstream_params: { model: "sandbox/chat" }, model_info: { cost_per_request: 1 } },
      "model_id"
    )
    const organization = await make("/organization/new", { organization_alias: "S", soft_budget: 2 }, "organization_id")
    const { key } = await gateway.key({ organization_id: organization })
    for (let call = 0; call < 4; call++) {
      const reply = await chat(key, { model: "soft" })
      assert.strictEqual(reply.status, 200, reply.text)
      assert.strictEqual(reply.headers.get("x-gateway-budget-remaining"), "unlimited")
    }
    assert.strictEqual((await get(`/organization/info?organization_id=${organization}`))["spend"], 4)
    const events = await database.query<{ readonly payload: Body }>(
      "SELECT payload FROM provenance_entries WHERE action = 'budget.soft_exceeded' AND resource_id = $1",
      [organization]
    )
    assert.strictEqual(events.length, 1)
    assert.deepInclude(events[0]!.payload, { owner: "organization", soft_budget: "2", window_start: null })
    await post("/model/delete", { model_id: model })
  })

  it("changes customers by row id and by end user", async () => {
    const id = await make(
      "/customer/new",
      { user_id: "ignored", end_user_id: "e2", end_user_name: "Two" },
      "customer_id"
    )
    assert.deepStrictEqual(errorOf(await post("/customer/new", { user_id: "e2" })), [
      400,
      "invalid_request_error",
      "already_exists",
      "end_user_id"
    ])
    assert.deepStrictEqual((await post("/customer/update", { customer_id: "x", id, end_user_name: "Zwei" })).json, {
      updated: true
    })
    await post("/customer/update", { customer_id: "e2", blocked: true })
    const rows = (await get("/customer/list"))["data"] as ReadonlyArray<Body>
    assert.deepInclude(
      rows.find((row) => row["id"] === id),
      { end_user_name: "Zwei", blocked: true }
    )
    assert.deepStrictEqual(errorOf(await post("/customer/update", { customer_id: "nobody" })), notFound)
    assert.deepStrictEqual((await post("/customer/delete", { customer_id: "x", end_user_id: "e2" })).json, {
      deleted: true
    })
  })

  it("names the field of every input that it refuses", async () => {
    const cases = [
      ["/user/new", {}, "missing_field", "name"],
      ["/user/new", { name: "" }, "invalid_value", "name"],
      ["/user/new", { name: "x", user_email: "nobody" }, "invalid_format", "user_email"],
      ["/user/new", { name: "x\0" }, "invalid_value", "name"],
      ["/user/update", { user_id: "x", user_role: 3 }, "invalid_value", "user_role"],
      ["/team/new", {}, "missing_field", "team_alias"],
      ["/team/new", { team_alias: "x", max_budget: -1 }, "invalid_value", "max_budget"],
      ["/team/new", { team_alias: "x", models: [1] }, "invalid_value", "models.0"],
      ["/team/new", { team_alias: "x", organization_id: "none" }, "invalid_value", "organization_id"],
      ["/team/new", { team_alias: "x", budget_id: "none" }, "invalid_value", "budget_id"],
      ["/team/new", { team_alias: "x".repeat(300) }, "value_too_long", "team_alias"],
      ["/key/generate", { budget_id: "none" }, "invalid_value", "budget_id"],
      ["/organization/new", { organization_alias: 1 }, "invalid_value", "organization_alias"],
      ["/customer/new", { alias: "x" }, "missing_field", "user_id"],
      ["/budget/new", { max_budget: 1 }, "missing_field", "budget_id"],
      ["/budget/new", { budget_id: "x", budget_duration: "0d" }, "invalid_format", "budget_duration"],
      ["/budget/new", { budget_id: "x", budget_duration: "monthly" }, "invalid_format", "budget_duration"],
      ["/budget/new", { budget_id: "x", rpm_limit: 1.5 }, "invalid_value", "rpm_limit"],
      ["/management/tiers", {}, "missing_field", "external_id"]
    ] as const
    for (const [path, body, code, param] of cases) {
      assert.deepStrictEqual(errorOf(await post(path, body)), [400, "validation_error", code, param], path)
    }
  })

  it("holds every caller to its scope", async () => {
    const acme = await administrator({ role: "tenant_admin", tenant: "acme" })
    const other = await administrator({ role: "tenant_admin", tenant: "other" })
    const viewer = await administrator({ role: "viewer", tenant: "acme" })
    const as = (token: string, path: string, body?: Body) =>
      gateway.request(body === undefined ? "GET" : "POST", path, { token, body })
    const made = async (path: string, body: Body, field: string) =>
      ((await as(acme, path, body)).json as Record<string, string>)[field]!
    const organization = await made("/organization/new", { organization_alias: "O" }, "organization_id")
    const team = await made("/team/new", { team_alias: "T" }, "team_id")
    const user = await made("/user/new", { name: "U" }, "id")
    const customer = await made("/customer/new", { user_id: "e" }, "customer_id")
    await made("/budget/new", { budget_id: "b" }, "budget_id")
    const foreign = [
      as(other, `/user/info?user_id=${user}`),
      as(other, "/user/update", { user_id: user, name: "x" }),
      as(other, "/user/delete", { user_id: user }),
      as(other, `/team/info?team_id=${team}`),
      as(other, "/team/update", { team_id: team, team_alias: "x" }),
      as(other, "/team/block", { team_id: team }),
      as(other, "/team/delete", { team_id: team }),
      as(other, "/team/member_add", { team_id: team, user_id: user }),
      as(other, `/organization/info?organization_id=${organization}`),
      as(other, "/organization/update", { organization_id: organization }),
      as(other, "/organization/delete", { organization_id: organization }),
      as(other, "/customer/update", { customer_id: customer, blocked: true }),
      as(other, "/customer/delete", { customer_id: customer }),
      as(other, "/budget/info?budget_id=b"),
      as(other, "/budget/update", { budget_id: "b", max_budget: 1 }),
      as(other, "/budget/delete", { budget_id: "b" })
    ]
    for (const reply of await Promise.all(foreign)) assert.deepStrictEqual(errorOf(reply), notFound)
    for (const path of ["/user/list", "/team/list", "/organization/list", "/customer/list", "/budget/list"]) {
      assert.deepStrictEqual((await as(other, path)).json, { data: [], has_more: false })
      assert.strictEqual(((await as(viewer, path)).json as { data: ReadonlyArray<unknown> }).data.length, 1)
    }
    assert.strictEqual((await as(viewer, "/team/update", { team_id: team })).status, 403)
    // An organization's administrator spends no other organization's budgets.
    const admin = await administrator({ role: "org_admin", tenant: "acme", organization_id: organization })
    for (const [field, value] of [
      ["team_id", team],
      ["user_id", user]
    ] as const) {
      assert.deepStrictEqual(errorOf(await as(admin, "/key/generate", { [field]: value })), [
        400,
        "validation_error",
        "invalid_value",
        field
      ])
    }
    const own = ((await as(admin, "/team/new", { team_alias: "Own" })).json as Record<string, string>)["team_id"]
    assert.strictEqual((await as(admin, "/key/generate", { team_id: own })).status, 201)
    // A tier of the same id in another tenant is another tier.
    assert.strictEqual((await as(other, "/budget/new", { budget_id: "b" })).status, 201)
  })
})
