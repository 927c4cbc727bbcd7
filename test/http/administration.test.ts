/** Groups, tags, configuration, callbacks, guardrails and billing over HTTP, with two tenants. */
import { createHmac } from "node:crypto"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { type OpenDatabase, openDatabase, until } from "#test/support/acceptance.ts"
import { administratorToken } from "#test/support/administrators.ts"
import { type Gateway, type Reply, startGateway } from "#test/support/Gateway.ts"
import { WebhookReceiver } from "#test/support/WebhookReceiver.ts"

let database: OpenDatabase
let gateway: Gateway
let receiver: WebhookReceiver
const tokens = { acme: "", globex: "", viewer: "", organization: "", otherOrganization: "", instance: "" }

beforeAll(async () => {
  database = await openDatabase()
  receiver = await WebhookReceiver.start()
  gateway = await startGateway({
    databaseUrl: database.url,
    env: { GATEWAY_TENANTS: "globex,acme", GATEWAY_ALLOW_PRIVATE_CALLBACKS: "true" }
  })
  tokens.acme = await administratorToken({ sub: "ann", tenant: "acme" })
  tokens.globex = await administratorToken({ sub: "gus", tenant: "globex" })
  tokens.viewer = await administratorToken({ sub: "vic", tenant: "acme", role: "viewer" })
  tokens.organization = await administratorToken({ tenant: "acme", role: "org_admin", organization_id: "org-1" })
  tokens.otherOrganization = await administratorToken({ tenant: "acme", role: "org_admin", organization_id: "org-2" })
  tokens.instance = await administratorToken({ class: "control_plane", role: "instance_admin" })
})

afterAll(async () => {
  await gateway.stop()
  await database.close()
  await receiver.stop()
})

type Who = keyof typeof tokens

const as = (who: Who, method: string, path: string, body?: unknown) =>
  gateway.request(method, path, { token: tokens[who], body })

const expectStatus = (reply: Reply, status: number): void => assert.strictEqual(reply.status, status, reply.text)

const json = <A>(reply: Reply): A => reply.json as A

const failure = (reply: Reply) =>
  json<{ readonly error: { readonly type: string; readonly code: string; readonly param?: string } }>(reply).error

const data = async (who: Who, path: string): Promise<ReadonlyArray<Record<string, unknown>>> => {
  const reply = await as(who, "GET", path)
  expectStatus(reply, 200)
  return json<{ data: ReadonlyArray<Record<string, unknown>> }>(reply).data
}

const audited = (schema: string, resourceId: string) =>
  database.query<{ action: string; actor: string; request_id: string | null }>(
    `SELECT action, actor, request_id FROM ${schema}.provenance_entries WHERE resource_id = $1 ORDER BY sequence_number`,
    [resourceId]
  )

describe("groups", () => {
  const create = async (who: Who, name: string) => {
    const reply = await as(who, "POST", "/management/v1/groups/", { name })
    expectStatus(reply, 201)
    return json<{ group: { id: string; name: string; catalog_role: { name: string } } }>(reply).group
  }

  it("makes a group with its catalog role, and answers 409 for a taken name, also when two come at once", async () => {
    const group = await create("acme", "analysts")
    assert.strictEqual(group.catalog_role.name, "analysts")
    const again = await as("acme", "POST", "/management/v1/groups/", { name: "analysts" })
    expectStatus(again, 409)
    assert.deepInclude(failure(again), { type: "conflict_error", code: "already_exists", param: "name" })
    const replies = await Promise.all(
      Array.from({ length: 8 }, () => as("acme", "POST", "/management/v1/groups/", { name: "twins" }))
    )
    assert.deepStrictEqual(replies.map(({ status }) => status).sort(), [201, 409, 409, 409, 409, 409, 409, 409])
    // The name is free in another tenant.
    await create("globex", "analysts")
  })

  it("adds and removes members and grants, each as often as one likes, and audits what changed", async () => {
    const { id } = await create("acme", "curators")
    for (let time = 0; time < 2; time++) {
      expectStatus(await as("acme", "POST", `/management/v1/groups/${id}/members`, { principal_id: "user:kim" }), 200)
      expectStatus(
        await as("acme", "POST", `/management/v1/groups/${id}/permissions`, {
          privilege: "read",
          object_type: "vector_table",
          object_id: "docs"
        }),
        200
      )
    }
    assert.deepStrictEqual(json(await as("acme", "GET", `/management/v1/groups/${id}/members`)), {
      data: ["user:kim"]
    })
    const found = json<{ group: { permissions: unknown } }>(await as("acme", "GET", `/management/v1/groups/${id}`))
    assert.deepStrictEqual(found.group.permissions, [
      { privilege: "read", object_type: "vector_table", object_id: "docs", tenant: "" }
    ])
    for (let time = 0; time < 2; time++) {
      const body = { privilege: "read", object_type: "vector_table", object_id: "docs" }
      expectStatus(await as("acme", "POST", `/management/v1/groups/${id}/permissions/remove`, body), 200)
      expectStatus(
        await as("acme", "POST", `/management/v1/groups/${id}/members/remove`, { principal_id: "user:kim" }),
        200
      )
    }
    expectStatus(await as("acme", "DELETE", `/management/v1/groups/${id}`), 200)
    expectStatus(await as("acme", "DELETE", `/management/v1/groups/${id}`), 404)
    const entries = await audited("tenant_acme", id)
    assert.deepStrictEqual(
      entries.map(({ action }) => action),
      [
        "group.created",
        "group.member_added",
        "group.permission_granted",
        "group.permission_revoked",
        "group.member_removed",
        "group.deleted"
      ]
    )
    assert.isTrue(entries.every(({ actor, request_id }) => actor === "user:ann" && request_id !== null))
  })

  it("is a tenant administrator's own business", async () => {
    const { id } = await create("acme", "insiders")
    const path = `/management/v1/groups/${id}`
    const expected: ReadonlyArray<readonly [method: string, path: string, body: unknown, status: number]> = [
      ["GET", path, undefined, 404],
      ["DELETE", path, undefined, 404],
      ["GET", `${path}/members`, undefined, 403],
      ["POST", `${path}/members`, { principal_id: "user:gus" }, 403],
      ["POST", `${path}/members/remove`, { principal_id: "user:gus" }, 403],
      ["POST", `${path}/permissions`, { privilege: "all" }, 404],
      ["POST", `${path}/permissions/remove`, { privilege: "all" }, 404]
    ]
    for (const [method, target, body, status] of expected) {
      const foreign = await as("globex", method, target, body)
      expectStatus(foreign, status)
      // A foreign group is told from an absent one by nothing.
      const absent = await as("globex", method, target.replace(id, "01890a5d-ac96-774b-bcce-b302099a8057"), body)
      assert.strictEqual(foreign.text, absent.text)
    }
    assert.isFalse((await data("globex", "/management/v1/groups/")).some((group) => group["id"] === id))
    assert.isTrue((await data("instance", "/management/v1/groups/")).some((group) => group["id"] === id))
    assert.isTrue((await data("viewer", "/management/v1/groups/")).some((group) => group["id"] === id))
    expectStatus(await as("viewer", "POST", "/management/v1/groups/", { name: "mine" }), 403)
    expectStatus(await as("organization", "GET", "/management/v1/groups/"), 403)
    expectStatus(await as("organization", "POST", "/management/v1/groups/", { name: "mine" }), 403)
    const other = await as("acme", "POST", `${path}/permissions`, { privilege: "read", tenant: "globex" })
    expectStatus(other, 403)
    assert.strictEqual(failure(other).code, "tenant_override_forbidden")
  })

  it("names the field of a bad body", async () => {
    const missing = await as("acme", "POST", "/management/v1/groups/", {})
    expectStatus(missing, 400)
    assert.deepInclude(failure(missing), { code: "missing_field", param: "name" })
    const nul = await as("acme", "POST", "/management/v1/groups/", { name: "a\u0000b" })
    expectStatus(nul, 400)
    assert.strictEqual(failure(nul).param, "name")
  })
})

describe("tags", () => {
  it("are made once, renamed by id, changed by name, deleted", async () => {
    const replies = await Promise.all(
      Array.from({ length: 6 }, () => as("acme", "POST", "/tag/new", { tag_name: "gold", color: "#fc0" }))
    )
    assert.deepStrictEqual(replies.map(({ status }) => status).sort(), [201, 400, 400, 400, 400, 400])
    const refused = replies.find(({ status }) => status === 400)!
    assert.deepInclude(failure(refused), { type: "invalid_request_error", code: "already_exists" })
    const id = json<{ tag_id: string }>(replies.find(({ status }) => status === 201)!).tag_id
    expectStatus(await as("acme", "POST", "/tag/update", { tag_id: "gold", description: "by name" }), 200)
    expectStatus(await as("acme", "POST", "/tag/update", { tag_id: id, tag_name: "silver" }), 200)
    const [tag] = (await data("acme", "/tag/list")).filter((row) => row["id"] === id)
    assert.deepInclude(tag, { name: "silver", color: "#fc0", description: "by name" })
    expectStatus(await as("globex", "POST", "/tag/update", { tag_id: id, color: "red" }), 404)
    expectStatus(await as("globex", "POST", "/tag/delete", { tag_id: id }), 404)
    expectStatus(await as("globex", "POST", "/tag/delete", { tag_id: "silver" }), 404)
    expectStatus(await as("organization", "POST", "/tag/delete", { tag_id: id }), 404)
    assert.deepStrictEqual(await data("globex", "/tag/list"), [])
    expectStatus(await as("acme", "POST", "/tag/delete", { tag_id: "", name: "silver" }), 200)
    expectStatus(await as("acme", "POST", "/tag/delete", { tag_id: id }), 404)
    assert.deepStrictEqual(
      (await audited("tenant_acme", id)).map(({ action }) => action),
      ["tag.created", "tag.updated", "tag.updated", "tag.deleted"]
    )
  })

  it("refuses a rename onto another tag", async () => {
    const { tag_id: id } = json<{ tag_id: string }>(await as("acme", "POST", "/tag/new", { tag_name: "one" }))
    expectStatus(await as("acme", "POST", "/tag/new", { tag_name: "two" }), 201)
    const reply = await as("acme", "POST", "/tag/update", { tag_id: id, tag_name: "two" })
    expectStatus(reply, 400)
    assert.strictEqual(failure(reply).code, "already_exists")
  })
})

describe("catalog tags", () => {
  const path = "/management/v1/catalog/tags"
  it("are set, changed and removed, with no body to answer", async () => {
    const target = { type: "table", name: "docs" }
    const set = await as("acme", "POST", path, { ns: "gov", key: "class", value: "secret", target })
    expectStatus(set, 200)
    assert.strictEqual(set.text, "")
    // The same target, its fields in another order.
    const turned = { name: "docs", type: "table" }
    expectStatus(await as("acme", "POST", path, { ns: "gov", key: "class", value: "public", target: turned }), 200)
    assert.deepStrictEqual(await data("acme", path), [{ ns: "gov", key: "class", value: "public", target }])
    assert.deepStrictEqual(await data("globex", path), [])
    assert.deepStrictEqual(await data("organization", path), [])
    expectStatus(await as("globex", "DELETE", path, { ns: "gov", key: "class", target }), 200)
    assert.strictEqual((await data("acme", path)).length, 1)
    const missing = await as("acme", "DELETE", path, { ns: "gov" })
    expectStatus(missing, 400)
    assert.deepInclude(failure(missing), { code: "missing_field", param: "target" })
    const removed = await as("acme", "DELETE", path, { ns: "gov", key: "class", target })
    expectStatus(removed, 200)
    assert.strictEqual(removed.text, "")
    assert.deepStrictEqual(await data("acme", path), [])
  })
})

describe("configuration", () => {
  const config = async (who: Who) => json<Record<string, unknown>>(await as(who, "GET", "/config/list"))

  it("is a map for each tenant and organization", async () => {
    expectStatus(await as("acme", "POST", "/config/update", { theme: "dark", limits: { a: [1, null] }, old: 1 }), 200)
    expectStatus(await as("acme", "POST", "/config/update", { theme: "light", old: null }), 200)
    expectStatus(await as("organization", "POST", "/config/update", { theme: "own" }), 200)
    assert.deepStrictEqual(await config("acme"), { limits: { a: [1, null] }, theme: "light" })
    assert.deepStrictEqual(await config("viewer"), { limits: { a: [1, null] }, theme: "light" })
    assert.deepStrictEqual(await config("organization"), { theme: "own" })
    assert.deepStrictEqual(await config("globex"), {})
    expectStatus(await as("viewer", "POST", "/config/update", { theme: "mine" }), 403)
  })

  it("keeps every entry of updates that come at once", async () => {
    await Promise.all(
      Array.from({ length: 20 }, (_, index) =>
        as("globex", "POST", "/config/update", { [`a${index}`]: index, shared: index, [`b${19 - index}`]: index })
      )
    )
    assert.strictEqual(Object.keys(await config("globex")).length, 41)
  })

  it("takes an object and nothing else", async () => {
    for (const body of ["[1]", "1", '{"a":"\\u0000"}'])
      expectStatus(await as("acme", "POST", "/config/update", body), 400)
  })
})

describe("callbacks", () => {
  it("registers, lists without the secret, deletes; refuses what cannot be called", async () => {
    const made = await as("acme", "POST", "/callback/new", { url: `${receiver.url}/a`, events: ["key.created"] })
    expectStatus(made, 201)
    const { callback_id: id, secret } = json<{ callback_id: string; secret: string }>(made)
    assert.match(secret, /^whsec_/)
    const rows = await data("acme", "/callback/list")
    assert.deepInclude(
      rows.find((row) => row["callback_id"] === id),
      { url: `${receiver.url}/a`, events: ["key.created"], secret: "********" }
    )
    assert.deepStrictEqual(await data("globex", "/callback/list"), [])
    const stored = await database.query<{ row: string }>("SELECT callbacks::text AS row FROM callbacks")
    assert.isFalse(stored.some(({ row }) => row.includes(secret)))
    expectStatus(await as("globex", "POST", "/callback/delete", { callback_id: id }), 404)
    expectStatus(await as("acme", "POST", "/callback/delete", { callback_id: id }), 200)
    expectStatus(await as("acme", "POST", "/callback/delete", { callback_id: id }), 404)
    const faults: ReadonlyArray<readonly [body: unknown, param: string]> = [
      [{ events: [] }, "url"],
      [{ url: "nowhere" }, "url"],
      [{ url: "ftp://example.com/" }, "url"],
      [{ url: "https://u:p@example.com/" }, "url"],
      [{ url: "http://169.254.169.254/latest" }, "url"],
      [{ url: "https://example.com", events: ["key.born"] }, "events.0"]
    ]
    for (const [body, param] of faults) {
      const reply = await as("acme", "POST", "/callback/new", body)
      expectStatus(reply, 400)
      assert.strictEqual(failure(reply).param, param)
    }
  })

  it("tells a tenant of its own keys, signed, and of nobody else's", async () => {
    const secret = "a-secret-of-the-receiver"
    const made = await as("acme", "POST", "/callback/new", { url: `${receiver.url}/keys`, secret })
    expectStatus(made, 201)
    assert.notProperty(made.json, "secret")
    expectStatus(await as("globex", "POST", "/key/generate", { key_name: "theirs" }), 201)
    const { key_id: keyId } = json<{ key_id: string }>(await as("acme", "POST", "/key/generate", { key_name: "ours" }))
    expectStatus(await as("acme", "POST", "/key/block", { key_id: keyId }), 200)
    const webhooks = await until(
      async () => receiver.received.filter(({ path }) => path === "/keys"),
      (received) => received.length >= 2
    )
    const events = webhooks.map(({ body }) => JSON.parse(body) as { type: string; tenant: string; data: unknown })
    assert.deepStrictEqual(events.map(({ type }) => type).sort(), ["key.blocked", "key.created"])
    for (const event of events) {
      assert.strictEqual(event.tenant, "acme")
      assert.deepInclude(event.data, { resource_id: keyId, actor: "user:ann" })
    }
    const [first] = webhooks
    const signed = `${first!.headers["webhook-id"] as string}.${first!.headers["webhook-timestamp"] as string}.${first!.body}`
    assert.strictEqual(
      first!.headers["webhook-signature"],
      `v1,${createHmac("sha256", secret).update(signed).digest("base64")}`
    )
    const left = await until(
      () => database.query<{ n: number }>("SELECT count(*)::int AS n FROM callback_deliveries"),
      ([row]) => row?.n === 0
    )
    assert.strictEqual(left[0]?.n, 0)
  })
})

describe("guardrails", () => {
  const blockBadWords = { guardrail_name: "words", mode: "block", config: { words: ["forbidden"] } }

  it("are made, inferred, changed and deleted within the caller's scope", async () => {
    const made = await as("acme", "POST", "/guardrail/new", blockBadWords)
    expectStatus(made, 201)
    const { guardrail_id: id } = json<{ guardrail_id: string }>(made)
    const [row] = (await data("acme", "/guardrail/list")).filter((guardrail) => guardrail["id"] === id)
    assert.deepInclude(row, {
      guardrail_name: "words",
      name: "words",
      guardrail_type: "deny_list",
      mode: "block",
      enabled: true,
      gateway_params: {}
    })
    const twice = await as("acme", "POST", "/guardrail/new", blockBadWords)
    expectStatus(twice, 400)
    assert.strictEqual(failure(twice).code, "already_exists")
    expectStatus(await as("globex", "POST", "/guardrail/update", { guardrail_id: id, enabled: false }), 404)
    expectStatus(await as("globex", "POST", "/guardrail/delete", { guardrail_id: id }), 404)
    expectStatus(await as("organization", "POST", "/guardrail/update", { guardrail_id: id, enabled: false }), 403)
    expectStatus(await as("organization", "POST", "/guardrail/delete", { guardrail_id: id }), 403)
    expectStatus(await as("acme", "POST", "/guardrail/update", { guardrail_id: id, mode: "log" }), 200)
    const bad = await as("acme", "POST", "/guardrail/update", { guardrail_id: id, config: { words: [7] } })
    expectStatus(bad, 400)
    assert.strictEqual(failure(bad).param, "config.words.0")
    expectStatus(await as("acme", "POST", "/guardrail/delete", { guardrail_id: id }), 200)
    expectStatus(await as("acme", "POST", "/guardrail/delete", { guardrail_id: id }), 404)
    assert.deepStrictEqual(
      (await audited("tenant_acme", id)).map(({ action }) => action),
      ["guardrail.created", "guardrail.updated", "guardrail.deleted"]
    )
  })

  it("are made once when the same comes several times at once, and two updates both hold", async () => {
    const body = { guardrail_name: "once", guardrail_type: "length", mode: "log", config: { max_characters: 10 } }
    const replies = await Promise.all(Array.from({ length: 6 }, () => as("acme", "POST", "/guardrail/new", body)))
    assert.deepStrictEqual(replies.map(({ status }) => status).sort(), [201, 400, 400, 400, 400, 400])
    const { guardrail_id: id } = json<{ guardrail_id: string }>(replies.find(({ status }) => status === 201)!)
    const updates = await Promise.all([
      as("acme", "POST", "/guardrail/update", { guardrail_id: id, enabled: false }),
      as("acme", "POST", "/guardrail/update", { guardrail_id: id, mode: "block" })
    ])
    for (const update of updates) expectStatus(update, 200)
    const [row] = (await data("acme", "/guardrail/list")).filter((guardrail) => guardrail["id"] === id)
    assert.deepInclude(row, { enabled: false, mode: "block" })
    expectStatus(await as("acme", "POST", "/guardrail/delete", { guardrail_id: id }), 200)
  })

  it("of an organization are another's 403", async () => {
    const made = await as("organization", "POST", "/guardrail/new", blockBadWords)
    expectStatus(made, 201)
    const { guardrail_id: id } = json<{ guardrail_id: string }>(made)
    expectStatus(await as("otherOrganization", "POST", "/guardrail/delete", { guardrail_id: id }), 403)
    assert.deepStrictEqual(await data("otherOrganization", "/guardrail/list"), [])
    const instance = await gateway.admin("POST", "/guardrail/new", { ...blockBadWords, mode: "log" })
    const { guardrail_id: everybodys } = json<{ guardrail_id: string }>(instance)
    expectStatus(await as("acme", "POST", "/guardrail/delete", { guardrail_id: everybodys }), 403)
    expectStatus(await as("organization", "POST", "/guardrail/delete", { guardrail_id: id }), 200)
    expectStatus(await gateway.admin("POST", "/guardrail/delete", { guardrail_id: everybodys }), 200)
  })

  it("are tried on a text without leaving a trace", async () => {
    const { guardrail_id: id } = json<{ guardrail_id: string }>(
      await as("acme", "POST", "/guardrail/new", { ...blockBadWords, guardrail_name: "tried" })
    )
    const check = async (who: Who, body: unknown) => as(who, "POST", "/guardrail/check", body)
    const bad = await check("acme", { guardrail_id: id, input: "a forbidden thing" })
    expectStatus(bad, 200)
    assert.deepInclude(json<Record<string, unknown>>(bad), { passed: false })
    assert.nestedPropertyVal(bad.json, "details.action", "block")
    assert.nestedPropertyVal(
      await check("acme", { guardrail_id: id, input: "fine" }).then(({ json: body }) => body),
      "passed",
      true
    )
    const foreign = await check("globex", { guardrail_id: id, input: "x" })
    expectStatus(foreign, 400)
    assert.strictEqual(failure(foreign).param, "guardrail_id")
    const missing = await check("acme", { guardrail_id: id })
    expectStatus(missing, 400)
    assert.strictEqual(failure(missing).param, "input")
    assert.deepStrictEqual(await data("acme", "/guardrail/logs"), [])
  })

  it("shows its log and statistics to those whose calls they were", async () => {
    await database.query(
      `INSERT INTO tenant_globex.guardrail_logs (id, created_at, request_id, call_id, guardrail_id, guardrail_name,
        organization_id, status, stage, duration_ms)
      SELECT gen_random_uuid(), now() - make_interval(secs => n), 'req-' || n, gen_random_uuid(), 'g-' || n % 2, 'G',
        CASE WHEN n % 3 = 0 THEN 'org-9' END, CASE WHEN n % 2 = 0 THEN 'blocked' ELSE 'passed' END, 'pre', 2
      FROM generate_series(1, 120) AS n`
    )
    const first = await data("globex", "/guardrail/logs")
    assert.strictEqual(first.length, 50)
    assert.strictEqual(first[0]?.["request_id"], "req-1")
    const third = await data("globex", "/guardrail/logs?page=3&page_size=50")
    assert.deepStrictEqual(third.map((entry) => entry["request_id"]).slice(-1), ["req-120"])
    const one = await data("globex", "/guardrail/logs?guardrail_id=g-1&page_size=500")
    assert.strictEqual(one.length, 60)
    assert.deepStrictEqual(await data("acme", "/guardrail/logs"), [])
    assert.strictEqual((await data("instance", "/guardrail/logs?page_size=500")).length, 120)
    const stats = json<Record<string, unknown>>(await as("globex", "GET", "/guardrail/logs/stats"))
    assert.deepInclude(stats, { total: 120, by_status: { blocked: 60, passed: 60 }, average_duration_ms: 2 })
    assert.deepInclude(json<Record<string, unknown>>(await as("acme", "GET", "/guardrail/logs/stats")), { total: 0 })
    const bad = await as("globex", "GET", "/guardrail/logs?page=0")
    expectStatus(bad, 400)
    assert.strictEqual(failure(bad).param, "page")
  })
})

describe("the instance", () => {
  it("lists its tenants to its own administrators", async () => {
    assert.deepStrictEqual(json(await as("instance", "GET", "/management/v1/tenants")), {
      tenants: ["acme", "globex"],
      dormant: false
    })
    for (const path of ["tenants", "orgs/usage", "billing-export/usage"]) {
      expectStatus(await as("acme", "GET", `/management/v1/${path}`), 403)
      expectStatus(await gateway.admin("GET", `/management/v1/${path}`), 200)
    }
  })

  it("answers bad windows, limits and cursors with the field", async () => {
    const faults: ReadonlyArray<readonly [path: string, param: string]> = [
      ["orgs/usage?window=1d", "window"],
      ["billing-export/usage?limit=0", "limit"],
      ["billing-export/usage?limit=1001", "limit"],
      ["billing-export/usage?limit=x", "limit"],
      ["billing-export/usage?cursor=AAAA", "cursor"]
    ]
    for (const [path, param] of faults) {
      const reply = await gateway.admin("GET", `/management/v1/${path}`)
      expectStatus(reply, 400)
      assert.strictEqual(failure(reply).param, param)
    }
  })
})
