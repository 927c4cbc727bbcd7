import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { type OpenDatabase, openDatabase } from "#test/support/acceptance.ts"
import { administratorToken } from "#test/support/administrators.ts"
import { sluice } from "#test/support/command.ts"
import { type Gateway, masterKey, type Reply, startGateway } from "#test/support/Gateway.ts"
import { sessionCookie, type SessionState } from "#test/support/sessions.ts"

type Body = Readonly<Record<string, unknown>>

const errorOf = (reply: Reply) => {
  const { error } = reply.json as { readonly error: Body }
  return [reply.status, error["type"], error["code"], error["param"]]
}
const notFound = [404, "not_found_error", "resource_not_found", undefined]
const dataOf = (reply: Reply) => (reply.json as { readonly data: ReadonlyArray<Body> }).data

/** A developer as its own credential shows it. */
interface Developer {
  readonly id: string
  readonly headers: Record<string, string>
  readonly keyId?: string
}

const processes = 2

describe("developer self-service", () => {
  let database: OpenDatabase
  let gateway: Gateway
  let peer: Gateway

  const as = (
    developer: Developer,
    method: string,
    path: string,
    body?: unknown,
    more: Record<string, string> = {},
    at: Gateway = gateway
  ) => at.request(method, `/developer/v1${path}`, { body, headers: { ...developer.headers, ...more } })

  const user = async (fields: Body = {}): Promise<string> => {
    const reply = await gateway.admin("POST", "/user/new", { name: "Dev", user_role: "developer", ...fields })
    assert.strictEqual(reply.status, 201, reply.text)
    return (reply.json as Record<string, string>)["id"]!
  }
  const withKey = async (fields: Body = {}, keyFields: Body = {}): Promise<Developer> => {
    const id = await user(fields)
    const { id: keyId, key } = await gateway.key({ user_id: id, key_alias: "issued", ...keyFields })
    return { id, keyId, headers: { authorization: `Bearer ${key}` } }
  }
  const withSession = async (fields: Body = {}, state: SessionState = "live"): Promise<Developer> => {
    const id = await user(fields)
    return { id, headers: { cookie: await sessionCookie(database, id, state) } }
  }
  const mint = async (developer: Developer, body: Body = {}) => {
    const reply = await as(developer, "POST", "/keys", body)
    assert.strictEqual(reply.status, 201, reply.text)
    return reply.json as { readonly id: string; readonly key: string; readonly key_alias: string | null }
  }
  const chat = (key: string) =>
    gateway.request("POST", "/v1/chat/completions", {
      token: key,
      body: { model: "priced", messages: [{ role: "user", content: "hi" }], max_tokens: 5 }
    })

  beforeAll(async () => {
    database = await openDatabase()
    const env = {
      GATEWAY_TENANTS: "acme,other",
      DEVELOPER_MAX_KEYS_PER_USER: "12",
      GATEWAY_ENCRYPTION_KEY: Buffer.alloc(32, 7).toString("base64")
    }
    gateway = await startGateway({ databaseUrl: database.url, env })
    peer = await startGateway({ databaseUrl: database.url, env })
    await gateway.admin("POST", "/model/new", {
      model_name: "priced",
      gateway_params: { model: "sandbox/chat" },
      model_info: { input_cost_per_token: 0.001, output_cost_per_token: 0.001 }
    })
  }, 60_000)
  afterAll(async () => {
    await Promise.all([gateway.stop(), peer.stop()])
    await database.close()
  })

  it("mints, shows, lists and revokes a key", async () => {
    const developer = await withKey()
    const reply = await as(developer, "POST", "/keys", {
      key_name: "laptop",
      key_alias: "",
      max_budget: 1.5,
      models: ["b", "a", "b"],
      rpm_limit: 3,
      tpm_limit: null,
      expires: "2999-01-01",
      user_id: "somebody-else",
      team_id: "t",
      organization_id: "o",
      tenant: "acme",
      metadata: { a: 1 }
    })
    assert.strictEqual(reply.status, 201, reply.text)
    const { id, key, ...rest } = reply.json as Record<string, string>
    assert.match(key!, /^sk-[A-Za-z0-9_-]{43}$/)
    assert.deepStrictEqual(rest, { key_alias: "" })
    const stored = (await gateway.admin("GET", `/key/info?key_id=${id}`)).json as Body
    assert.deepInclude(stored, {
      user_id: developer.id,
      team_id: null,
      organization_id: null,
      tenant: "",
      metadata: {},
      created_by: `user:${developer.id}`
    })
    const shown = await as(developer, "GET", `/keys/${id}`)
    assert.notInclude(shown.text, key!)
    const { created_at: createdAt, updated_at: updatedAt, ...row } = shown.json as Body
    assert.strictEqual(createdAt, updatedAt)
    assert.deepStrictEqual(row, {
      id,
      token: `sk-...${key!.slice(-4)}`,
      key_name: "laptop",
      key_alias: "",
      max_budget: 1.5,
      models: ["b", "a"],
      rpm_limit: 3,
      tpm_limit: null,
      expires: "2999-01-01T00:00:00.000Z",
      blocked: false
    })
    const ids = async (query = "") => dataOf(await as(developer, "GET", `/keys${query}`)).map((one) => one["id"])
    assert.deepStrictEqual(await ids(), [id, developer.keyId])
    assert.deepStrictEqual(await ids("?limit=1&offset=1"), [developer.keyId])
    assert.strictEqual((await gateway.request("GET", "/v1/models", { token: key! })).status, 200)
    assert.strictEqual((await peer.request("GET", "/v1/models", { token: key! })).status, 200)

    const revoked = await as(developer, "DELETE", `/keys/${id}`)
    assert.deepStrictEqual([revoked.status, revoked.text], [204, ""])
    assert.deepStrictEqual(await ids(), [developer.keyId])
    assert.deepStrictEqual(errorOf(await as(developer, "GET", `/keys/${id}`)), notFound)
    assert.deepStrictEqual(errorOf(await as(developer, "DELETE", `/keys/${id}`)), notFound)
    assert.strictEqual((await gateway.request("GET", "/v1/models", { token: key! })).status, 401)
    const deadline = performance.now() + 1_000
    while ((await peer.request("GET", "/v1/models", { token: key! })).status !== 401) {
      assert.isBelow(performance.now(), deadline, "the other process still takes the revoked key")
    }
  })

  it("answers 404 for what is absent and what is somebody else's, and breaks on no id", async () => {
    const [one, two] = [await withKey(), await withSession()]
    const { id } = await mint(two)
    const foreign = await as(one, "GET", `/keys/${id}`)
    const absent = await as(one, "GET", "/keys/01890000-0000-7000-8000-000000000000")
    assert.deepStrictEqual([foreign.status, foreign.text], [404, absent.text])
    assert.deepStrictEqual(errorOf(await as(one, "DELETE", `/keys/${id}`)), notFound)
    for (const text of ["x", "%00", "%F0%9F", "'; DROP TABLE api_keys; --", "x".repeat(300)]) {
      assert.strictEqual((await as(one, "GET", `/keys/${encodeURIComponent(text)}`)).status, 404, text)
    }
    assert.strictEqual((await as(two, "GET", `/keys/${id}`)).status, 200)
  })

  it("every failure to authenticate is the same to the byte", async () => {
    const developer = await withKey()
    const ownerless = await gateway.key({})
    const blocked = await withKey()
    await gateway.admin("POST", "/key/block", { key_id: blocked.keyId })
    const deleted = await withSession()
    await gateway.admin("POST", "/user/delete", { user_id: deleted.id })
    const gone = await withKey({}, { tenant: "" })
    await gateway.admin("POST", "/user/delete", { user_id: gone.id })
    const live = await withSession()
    const credentials: Readonly<Record<string, Record<string, string>>> = {
      none: {},
      "other role": (await withSession({ user_role: "viewer" })).headers,
      expired: (await withSession({}, "expired")).headers,
      revoked: (await withSession({}, "revoked")).headers,
      "deleted user's session": deleted.headers,
      "deleted user's key": gone.headers,
      "unknown session": { cookie: `gateway_session=gws_${"a".repeat(43)}` },
      "malformed session": { cookie: "gateway_session=%00" },
      "unknown key": { authorization: `Bearer sk-${"a".repeat(43)}` },
      "malformed key": { authorization: "Bearer nonsense" },
      "no bearer": { authorization: "Basic YTpi" },
      "bad header beside a good session": { ...live.headers, authorization: "Bearer x" },
      "ownerless key": { authorization: `Bearer ${ownerless.key}` },
      "blocked key": blocked.headers,
      "master key": { authorization: `Bearer ${masterKey}` },
      administrator: { authorization: `Bearer ${await administratorToken({ role: "tenant_admin", tenant: "acme" })}` },
      "another site's page": { ...live.headers, "sec-fetch-site": "cross-site" }
    }
    const seen = new Map<string, string>()
    for (const [name, headers] of Object.entries(credentials)) {
      const reply = await gateway.request("GET", "/developer/v1/keys", { headers })
      assert.strictEqual(reply.status, 401, name)
      const names = [...reply.headers.keys()].sort().join(",")
      seen.set(`${names}\n${reply.text}`, name)
    }
    assert.strictEqual(seen.size, 1, [...seen.entries()].join("\n"))
    assert.include(
      [...seen.keys()][0],
      '{"error":{"message":"Developer session is invalid or expired.","type":"authentication_error","code":"invalid_session"}}'
    )
    assert.strictEqual((await as(developer, "GET", "/keys")).status, 200)
    assert.strictEqual((await as(live, "GET", "/keys", undefined, { "sec-fetch-site": "same-origin" })).status, 200)
  })

  it("shows the quota to keys, on failures too, and to no session", async () => {
    const developer = await withKey({ rpm_limit: 60 })
    for (const path of ["/keys", "/keys/x", "/spend?start_date=x"]) {
      const reply = await as(developer, "GET", path)
      assert.strictEqual(reply.headers.get("x-gateway-ratelimit-limit"), "60", path)
      assert.isNotNull(reply.headers.get("x-gateway-budget-remaining"), path)
    }
    assert.isNull((await as(await withSession(), "GET", "/keys")).headers.get("x-gateway-ratelimit-limit"))
  })

  it("names the field that is wrong", async () => {
    const developer = await withKey()
    const bodies: ReadonlyArray<readonly [unknown, string, string]> = [
      [{ max_budget: -1 }, "invalid_value", "max_budget"],
      [{ max_budget: "1" }, "invalid_value", "max_budget"],
      [{ models: "a" }, "invalid_value", "models"],
      [{ models: ["a", 1] }, "invalid_value", "models.1"],
      [{ rpm_limit: 1.5 }, "invalid_value", "rpm_limit"],
      [{ expires: "soon" }, "invalid_value", "expires"],
      [{ key_name: "x".repeat(257) }, "value_too_long", "key_name"],
      [{ key_alias: "nul\0" }, "invalid_value", "key_alias"]
    ]
    for (const [body, code, param] of bodies) {
      assert.deepStrictEqual(
        errorOf(await as(developer, "POST", "/keys", body)),
        [400, "validation_error", code, param],
        JSON.stringify(body)
      )
    }
    const queries: ReadonlyArray<readonly [string, string, string]> = [
      ["/spend?start_date=yesterday", "invalid_format", "start_date"],
      ["/spend?start_date=2026-02-31", "invalid_value", "start_date"],
      ["/usage?end_date=0000-01-01", "invalid_format", "end_date"],
      ["/spend?start_date=2026-02-02&end_date=2026-02-01", "invalid_value", "start_date"],
      ["/spend/logs?page=-1", "invalid_value", "page"],
      ["/audit?page=0", "invalid_value", "page"],
      ["/audit?page_size=501", "invalid_value", "page_size"],
      ["/keys?limit=0", "invalid_value", "limit"],
      ["/keys?offset=x", "invalid_value", "offset"]
    ]
    for (const [path, code, param] of queries) {
      assert.deepStrictEqual(errorOf(await as(developer, "GET", path)), [400, "validation_error", code, param], path)
    }
    for (const key of ["", "x".repeat(256), "two words"]) {
      const reply = await as(developer, "POST", "/keys", {}, { "idempotency-key": key })
      assert.strictEqual(reply.status, 400, key)
    }
    assert.strictEqual(dataOf(await as(developer, "GET", "/keys")).length, 1)
  })

  it("clamps budgets to what is left of the grant", async () => {
    const developer = await withKey({ max_budget: 10 }, { max_budget: 1 })
    const budgetOf = async (id: string) => ((await as(developer, "GET", `/keys/${id}`)).json as Body)["max_budget"]
    const tooMuch = await as(developer, "POST", "/keys", { max_budget: 9.000000001 })
    assert.deepStrictEqual(errorOf(tooMuch), [400, "validation_error", "invalid_value", "max_budget"])
    assert.include(tooMuch.text, "9 dollars")
    const first = await mint(developer, { max_budget: 4 })
    const rest = await mint(developer)
    assert.deepStrictEqual([await budgetOf(first.id), await budgetOf(rest.id)], [4, 5])
    for (const body of [{}, { max_budget: null }, { max_budget: 0.5 }]) {
      assert.strictEqual((await as(developer, "POST", "/keys", body)).status, 400)
    }
    await as(developer, "DELETE", `/keys/${first.id}`)
    assert.strictEqual(await budgetOf((await mint(developer)).id), 4)
  })

  it("ten creations at once, in two processes, with room for three", async () => {
    const developer = await withSession({ max_budget: 3.5 })
    const replies = await Promise.all(
      Array.from({ length: 10 }, (_, at) =>
        as(developer, "POST", "/keys", { max_budget: 1 }, {}, at % processes === 0 ? gateway : peer)
      )
    )
    assert.deepStrictEqual(
      replies.map(({ status }) => status).sort(),
      [201, 201, 201, 400, 400, 400, 400, 400, 400, 400]
    )
    assert.strictEqual(dataOf(await as(developer, "GET", "/keys")).length, 3)
  })

  it("twenty creations at once stop at the key limit", async () => {
    const developer = await withKey()
    const replies = await Promise.all(
      Array.from({ length: 20 }, (_, at) =>
        as(developer, "POST", "/keys", {}, {}, at % processes === 0 ? gateway : peer)
      )
    )
    const refused = replies.filter(({ status }) => status !== 201)
    assert.strictEqual(replies.length - refused.length, 12)
    for (const reply of refused) {
      assert.deepStrictEqual(errorOf(reply), [400, "invalid_request_error", "developer_key_limit", undefined])
    }
    const [own] = dataOf(await as(developer, "GET", "/keys"))
    assert.strictEqual((await as(developer, "DELETE", `/keys/${String(own!["id"])}`)).status, 204)
    await mint(developer)
    assert.strictEqual((await as(developer, "POST", "/keys", {})).status, 400)
  })

  it("intersects models and never makes a restricted developer's key open", async () => {
    const session = await withSession({ models: ["priced", "b"] })
    const modelsOf = async (developer: Developer, body: Body) => {
      const { id } = await mint(developer, body)
      return ((await as(developer, "GET", `/keys/${id}`)).json as Body)["models"]
    }
    assert.deepStrictEqual(await modelsOf(session, {}), ["priced", "b"])
    assert.deepStrictEqual(await modelsOf(session, { models: [] }), ["priced", "b"])
    assert.deepStrictEqual(await modelsOf(session, { models: null }), ["priced", "b"])
    assert.deepStrictEqual(await modelsOf(session, { models: ["b", "c"] }), ["b"])
    const none = await as(session, "POST", "/keys", { models: ["c"] })
    assert.deepStrictEqual(errorOf(none), [400, "validation_error", "invalid_value", "models"])
    // What the presented key itself may not call, it cannot hand on.
    const narrow = await withKey({ models: ["priced", "b"] }, { models: ["b", "c"] })
    assert.deepStrictEqual(await modelsOf(narrow, {}), ["b"])
    assert.strictEqual((await as(narrow, "POST", "/keys", { models: ["priced"] })).status, 400)
    const open = await withKey()
    assert.deepStrictEqual(await modelsOf(open, {}), [])
    assert.deepStrictEqual(await modelsOf(open, { models: ["z"] }), ["z"])

    const available = async (developer: Developer) => {
      const reply = await as(developer, "GET", "/models/available")
      assert.strictEqual((reply.json as Body)["object"], "list")
      return dataOf(reply).map((model) => model["id"])
    }
    assert.deepStrictEqual(await available(session), ["priced"])
    assert.deepStrictEqual(await available(narrow), [])
    assert.include(await available(open), "sandbox/chat")
    assert.include(await available(open), "priced")
  })

  it("an Idempotency-Key answers once, in every process, and keeps no readable key", async () => {
    const developer = await withSession()
    const header = { "idempotency-key": "order-1" }
    const body = { key_alias: "once", max_budget: 1 }
    const replies = await Promise.all(
      Array.from({ length: 8 }, (_, at) =>
        as(developer, "POST", "/keys", body, header, at % processes === 0 ? gateway : peer)
      )
    )
    assert.strictEqual(new Set(replies.map(({ status, text }) => `${status} ${text}`)).size, 1)
    assert.strictEqual(replies[0]!.status, 201)
    const { key } = replies[0]!.json as Record<string, string>
    assert.strictEqual(dataOf(await as(developer, "GET", "/keys")).length, 1)
    const rows = await database.query<{ text: string }>("SELECT i::text AS text FROM developer_idempotency i")
    assert.isAbove(rows.length, 0)
    for (const { text } of rows) {
      assert.notInclude(text, key!)
      assert.notInclude(text, Buffer.from(key!).toString("hex"))
    }
    const other = await as(developer, "POST", "/keys", { ...body, max_budget: 2 }, header, peer)
    assert.deepStrictEqual(errorOf(other), [400, "invalid_request_error", "idempotency_key_reused", "Idempotency-Key"])
    // The key is the developer's own: another one's is another key.
    assert.strictEqual((await as(await withSession(), "POST", "/keys", body, header)).status, 201)
    // A refusal is not kept.
    const poor = await withSession({ max_budget: 1 })
    const again = { "idempotency-key": "retry" }
    assert.strictEqual((await as(poor, "POST", "/keys", { max_budget: 2 }, again)).status, 400)
    assert.strictEqual((await as(poor, "POST", "/keys", { max_budget: 1 }, again)).status, 201)
    // After the window the key is fresh.
    await database.query("UPDATE developer_idempotency SET expires_at = now() - interval '1 second'")
    const later = await as(developer, "POST", "/keys", { ...body, max_budget: 2 }, header)
    assert.strictEqual(later.status, 201, later.text)
  })

  it("the answer of an Idempotency-Key survives a restart", async () => {
    const developer = await withSession()
    const header = { "idempotency-key": "restart" }
    const env = { GATEWAY_ENCRYPTION_KEY: Buffer.alloc(32, 7).toString("base64"), GATEWAY_TENANTS: "acme,other" }
    const first = await startGateway({ databaseUrl: database.url, env })
    const before = await as(developer, "POST", "/keys", {}, header, first)
    await first.kill()
    const second = await startGateway({ databaseUrl: database.url, env })
    const after = await as(developer, "POST", "/keys", {}, header, second)
    await second.stop()
    assert.deepStrictEqual([after.status, after.text], [201, before.text])
  })

  it("sums what its keys spent, discarded ones included, and nobody else's", async () => {
    const developer = await withKey()
    const stranger = await withKey()
    const [spent, discarded] = [await mint(developer, { key_alias: "" }), await mint(developer, { key_alias: "old" })]
    for (const key of [spent.key, discarded.key, discarded.key]) assert.strictEqual((await chat(key)).status, 200)
    await chat((await mint(stranger)).key)
    await as(developer, "DELETE", `/keys/${discarded.id}`)

    const usage = dataOf(await as(developer, "GET", "/usage"))
    assert.deepStrictEqual(
      usage.map((row) => [row["key_id"], row["key_alias"], row["request_count"], row["discarded"]]),
      [
        [discarded.id, "old", 2, true],
        [spent.id, "", 1, false],
        [developer.keyId, "issued", 0, false]
      ]
    )
    const total = (await as(developer, "GET", "/spend")).json as Record<string, number | string>
    assert.strictEqual(total["total_requests"], 3)
    const sum = usage.reduce((all, row) => all + Number(row["spend"]), 0)
    assert.isAbove(sum, 0)
    assert.closeTo(Number(total["total_spend"]), sum, 1e-9)
    const today = new Date().toISOString().slice(0, 10)
    assert.strictEqual(total["end_date"], today)
    assert.deepStrictEqual((await as(developer, "GET", "/spend?start_date=2020-01-01&end_date=2020-01-31")).json, {
      total_spend: 0,
      total_requests: 0,
      start_date: "2020-01-01",
      end_date: "2020-01-31"
    })

    const logs = (await as(developer, "GET", "/spend/logs?page_size=2")).json as Body
    assert.deepInclude(logs, { page: 0, page_size: 2 })
    const second = await as(developer, "GET", "/spend/logs?page=1&page_size=2")
    const calls = [...(logs["data"] as ReadonlyArray<Body>), ...dataOf(second)]
    assert.deepStrictEqual(
      calls.map((call) => [call["key_id"], call["model"], call["status"]]),
      [
        [discarded.id, "priced", "success"],
        [discarded.id, "priced", "success"],
        [spent.id, "priced", "success"]
      ]
    )
    const starts = calls.map((call) => String(call["start_time"]))
    assert.deepStrictEqual(starts, starts.toSorted().toReversed())
  })

  it("lists what it did and what was done to its keys", async () => {
    const developer = await withKey()
    const { id } = await mint(developer, { key_alias: "audited" })
    await gateway.admin("POST", "/key/block", { key_id: id })
    await as(developer, "DELETE", `/keys/${id}`)
    await mint(await withKey())
    const reply = (await as(developer, "GET", "/audit")).json as Body
    assert.deepInclude(reply, { page: 1, page_size: 50 })
    const actor = `user:${developer.id}`
    assert.deepStrictEqual(
      (reply["data"] as ReadonlyArray<Body>).map((entry) => [entry["action"], entry["actor"], entry["resource_id"]]),
      [
        ["key.deleted", actor, id],
        ["key.blocked", "master_key", id],
        ["key.created", actor, id],
        ["key.created", "master_key", developer.keyId]
      ]
    )
    const second = dataOf(await as(developer, "GET", "/audit?page=2&page_size=3"))
    assert.deepStrictEqual(
      second.map((entry) => entry["resource_id"]),
      [developer.keyId]
    )
  })

  it("sessions are made and revoked on the command line", async () => {
    const id = await user()
    const run = (...parts: ReadonlyArray<string>) =>
      sluice(["session", ...parts], { DATABASE_URL: database.url, GATEWAY_TENANTS: "acme,other" })
    const made = await run("create", "--user", id, "--expires-in", "1h")
    assert.match(made.out, /^gws_[A-Za-z0-9_-]{43}\n$/, made.err)
    const developer = { id, headers: { cookie: `theme=dark; gateway_session=${made.out.trim()}` } }
    assert.strictEqual((await as(developer, "GET", "/keys")).status, 200)
    const stored = await database.query<{ text: string }>("SELECT s::text AS text FROM developer_sessions s")
    assert.isFalse(stored.some(({ text }) => text.includes(made.out.trim())))

    const [sessionId] = /[0-9a-f-]{36}/.exec(made.err) ?? [""]
    assert.strictEqual((await run("revoke", "--id", sessionId)).out, "1 session revoked\n")
    for (const at of [gateway, peer]) {
      assert.strictEqual((await as(developer, "GET", "/keys", undefined, {}, at)).status, 401)
    }
    const nobody = await run("create", "--user", "nobody")
    assert.deepStrictEqual([nobody.code, nobody.out], [1, ""])
    assert.include(nobody.err, "There is no user 'nobody'")
    assert.strictEqual((await run("create", "--user", id, "--expires-in", "soon")).code, 1)
    assert.strictEqual((await run("revoke")).code, 1)
  }, 60_000)

  it("keeps each tenant's developers to their tenant", async () => {
    const make = async (tenant: string): Promise<Developer> => {
      const token = await administratorToken({ role: "tenant_admin", tenant })
      const made = await gateway.request("POST", "/user/new", { token, body: { name: "D", user_role: "developer" } })
      const { id } = made.json as Record<string, string>
      return { id: id!, headers: { cookie: await sessionCookie(database, id!) } }
    }
    const [acme, other] = [await make("acme"), await make("other")]
    const { id, key } = await mint(acme)
    assert.deepInclude((await gateway.admin("GET", `/key/info?key_id=${id}`)).json as Body, {
      tenant: "acme",
      user_id: acme.id
    })
    await chat(key)
    assert.strictEqual(((await as(acme, "GET", "/spend")).json as Body)["total_requests"], 1)
    assert.strictEqual(((await as(other, "GET", "/spend")).json as Body)["total_requests"], 0)
    assert.deepStrictEqual(dataOf(await as(other, "GET", "/spend/logs")), [])
    assert.deepStrictEqual(dataOf(await as(other, "GET", "/usage")), [])
    assert.deepStrictEqual(dataOf(await as(other, "GET", "/audit")), [])
    assert.deepStrictEqual(errorOf(await as(other, "DELETE", `/keys/${id}`)), notFound)
    // A key of another tenant that names the same user is no key of this developer.
    const named = await gateway.key({ tenant: "other", user_id: acme.id })
    assert.deepStrictEqual(errorOf(await as(acme, "GET", `/keys/${named.id}`)), notFound)
    const stranger = { id: acme.id, headers: { authorization: `Bearer ${named.key}` } }
    assert.deepStrictEqual(
      dataOf(await as(stranger, "GET", "/keys")).map((row) => row["id"]),
      [named.id]
    )
  })
})
