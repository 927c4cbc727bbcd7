/**
 * Every management and developer route from one tenant at another one's rows: nothing is seen, nothing changes, and no
 * name is taken. Each route has a probe; one that is served without a probe fails here.
 */
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { declaredOperations } from "#http/openapi-documents.ts"
import { type OpenDatabase, openDatabase } from "#test/support/acceptance.ts"
import { type Gateway, type Reply, startGateway } from "#test/support/Gateway.ts"
import { leakIn, makeWorld, memberOf, sharedName, type World } from "#test/support/tenant-world.ts"

/** A request that concerns the rows of a world. */
interface Call {
  readonly params?: Readonly<Record<string, string>>
  readonly query?: string
  readonly body?: unknown
}

/**
 * `own`: the caller's own rows are what it is about, others' must not show. `row`: it names a row of the world by its
 * id. `name`: it names a row by a name that both tenants use, so the caller's own row is meant. `create`: it makes a row.
 * `instance`: only administrators of the whole instance may. `shared`: it holds nothing of any tenant.
 */
interface Probe {
  readonly about: "own" | "row" | "name" | "create" | "instance" | "shared"
  readonly call: (world: World) => Call
}

const probe = (about: Probe["about"], call: Probe["call"] = () => ({})): Probe => ({ about, call })
const own = probe("own")
const instance = probe("instance")
const body = (about: Probe["about"], make: (world: World) => unknown): Probe =>
  probe(about, (world) => ({ body: make(world) }))
const query = (name: string, kind: keyof World["ids"]): Probe =>
  probe("row", ({ ids }) => ({ query: `${name}=${ids[kind]}` }))
const target = { table: sharedName }

/** In the order in which an owner can do all of it: what deletes a row comes last. */
const probes: Readonly<Record<string, Probe>> = {
  "GET /openapi/{filename}": probe("shared", () => ({ params: { filename: "management.yaml" } })),
  "GET /management/schema": probe("shared"),
  "GET /model/list": probe("shared"),
  "GET /model/info": probe("shared", () => ({ query: "model_name=sandbox/chat" })),
  "POST /model/new": instance,
  "POST /model/update": instance,
  "POST /model/delete": instance,
  "GET /credential/list": instance,
  "GET /credential/provider-presets": instance,
  "POST /credential/new": instance,
  "POST /credential/update": instance,
  "POST /credential/delete": instance,
  "POST /credential/provision-from-env": instance,
  "POST /management/tiers": instance,
  "POST /management/organizations/{id}/apply_tier": probe("instance", ({ ids }) => ({
    params: { id: ids.organization }
  })),
  "GET /management/v1/billing-export/usage": instance,
  "GET /management/v1/orgs/usage": instance,
  "GET /management/v1/tenants": instance,

  "GET /key/list": own,
  "GET /key/info": query("key_id", "key"),
  "POST /key/generate": body("create", () => ({ key_alias: sharedName })),
  "POST /key/block": body("row", ({ ids }) => ({ key: ids.token })),
  "POST /key/unblock": body("row", ({ ids }) => ({ key_id: ids.key })),
  "POST /key/update": body("row", ({ ids }) => ({ key: ids.key, rpm_limit: 7 })),
  "GET /user/list": own,
  "GET /user/info": query("user_id", "user"),
  "POST /user/new": body("create", () => ({ name: "n", user_email: "another@x.org" })),
  "POST /user/update": body("row", ({ ids }) => ({ user_id: ids.user, name: "changed" })),
  "GET /team/list": own,
  "GET /team/info": query("team_id", "team"),
  "POST /team/new": body("create", () => ({ team_alias: "t" })),
  "POST /team/update": body("row", ({ ids }) => ({ team_id: ids.team, team_alias: "changed" })),
  "POST /team/block": body("row", ({ ids }) => ({ team_id: ids.team })),
  "POST /team/unblock": body("row", ({ ids }) => ({ team_id: ids.team })),
  "POST /team/member_delete": body("row", ({ ids }) => ({ team_id: ids.team, user_id: ids.user })),
  "POST /team/member_add": body("row", ({ ids }) => ({ team_id: ids.team, user_id: ids.user })),
  "GET /organization/list": own,
  "GET /organization/info": query("organization_id", "organization"),
  "POST /organization/new": body("create", () => ({ organization_alias: "o" })),
  "POST /organization/update": body("row", ({ ids }) => ({
    organization_id: ids.organization,
    metadata: { changed: true }
  })),
  "POST /organization/member_delete": body("row", ({ ids }) => ({
    organization_id: ids.organization,
    user_id: ids.user
  })),
  "POST /organization/member_add": body("row", ({ ids }) => ({ organization_id: ids.organization, user_id: ids.user })),
  "GET /customer/list": own,
  "POST /customer/new": body("create", () => ({ user_id: "another" })),
  "POST /customer/update": body("row", ({ ids }) => ({ customer_id: ids.customer, blocked: true })),
  "GET /budget/list": own,
  "GET /budget/info": probe("name", () => ({ query: `budget_id=${sharedName}` })),
  "POST /budget/new": body("create", () => ({ budget_id: "another" })),
  "POST /budget/update": body("name", () => ({ budget_id: sharedName, max_budget: 6 })),
  "GET /guardrail/list": own,
  "GET /guardrail/logs": own,
  "GET /guardrail/logs/stats": own,
  "POST /guardrail/check": body("row", ({ ids, marker }) => ({ guardrail_id: ids.guardrail, input: marker })),
  "POST /guardrail/new": body("create", () => ({
    guardrail_name: "another",
    guardrail_type: "deny_list",
    mode: "log",
    config: { phrases: ["x"] }
  })),
  "POST /guardrail/update": body("row", ({ ids }) => ({ guardrail_id: ids.guardrail, enabled: false })),
  "GET /callback/list": own,
  "POST /callback/new": body("create", () => ({
    url: "https://callbacks.invalid/another",
    events: ["pipeline.run.failed"]
  })),
  "GET /config/list": own,
  "POST /config/update": body("name", () => ({ [sharedName]: "changed" })),
  "GET /tag/list": own,
  "POST /tag/new": body("create", () => ({ tag_name: "another" })),
  "POST /tag/update": body("row", ({ ids }) => ({ tag_id: ids.tag, id: ids.tag, color: "red" })),
  "GET /management/v1/groups/": own,
  "GET /management/v1/groups/{id}": probe("row", ({ ids }) => ({ params: { id: ids.group } })),
  "GET /management/v1/groups/{id}/members": probe("row", ({ ids }) => ({ params: { id: ids.group } })),
  "POST /management/v1/groups/": body("create", () => ({ name: "another" })),
  "POST /management/v1/groups/{id}/members": probe("row", ({ ids }) => ({
    params: { id: ids.group },
    body: { principal_id: "user:another" }
  })),
  "POST /management/v1/groups/{id}/permissions": probe("row", ({ ids }) => ({
    params: { id: ids.group },
    body: { privilege: "insert" }
  })),
  "POST /management/v1/groups/{id}/permissions/remove": probe("row", (world) => ({
    params: { id: world.ids.group },
    body: { privilege: "select", object_id: world.marker }
  })),
  "POST /management/v1/groups/{id}/members/remove": probe("row", (world) => ({
    params: { id: world.ids.group },
    body: { principal_id: memberOf(world) }
  })),
  "GET /management/v1/catalog/tags": own,
  "POST /management/v1/catalog/tags": body("name", () => ({ ns: "ns", key: sharedName, value: "changed", target })),
  "POST /management/v1/agent/chat": body("create", () => ({
    model: "sandbox/chat",
    messages: [{ role: "user", content: "hi" }],
    max_tokens: 5
  })),

  "GET /management/dataset/list": own,
  "POST /management/dataset/new": body("create", () => ({
    name: "another",
    content: { name: "another", storage_format: "parquet", table_ref: { snapshot_ids: ["1"] } }
  })),
  "POST /management/dataset/{id}/items": probe("row", ({ ids }) => ({
    params: { id: ids.dataset },
    body: { items: [{ id: "b", input: "i", expected: "e" }] }
  })),
  "POST /management/dataset/{id}/sample_from_production": probe("row", ({ ids }) => ({
    params: { id: ids.dataset },
    body: { sample_size: 1 }
  })),
  "GET /management/eval_suite/{id}/versions": probe("row", ({ ids }) => ({ params: { id: ids.suite } })),
  "POST /management/eval_suite/new": body("create", () => ({
    name: "another",
    content: { name: "another", eval_type: "exact_match", test_cases: [{ id: "a", input: "i", expected: "x" }] }
  })),
  "GET /management/eval_job/list": own,
  "GET /management/eval_job/{id}": probe("row", ({ ids }) => ({ params: { id: ids.job } })),
  "GET /management/eval_job/{id}/results": probe("row", ({ ids }) => ({ params: { id: ids.job } })),
  "POST /management/eval_job/new": body("row", ({ ids }) => ({ eval_suite_id: ids.suite })),

  "GET /management/pipelines/definitions": own,
  "GET /management/pipelines/definitions/{id}": probe("row", ({ ids }) => ({ params: { id: ids.definition } })),
  "POST /management/pipelines/definitions": body("create", () => ({
    dsl_source: "name: another\nsteps:\n- {id: check, operator: human_review, with: {title: t}}"
  })),
  "GET /management/pipelines/runs": own,
  "GET /management/pipelines/hitl/pending": own,
  "GET /management/pipelines/runs/{id}": probe("row", ({ ids }) => ({ params: { id: ids.run } })),
  "GET /management/pipelines/runs/{id}/history": probe("row", ({ ids }) => ({ params: { id: ids.run } })),
  "GET /management/pipelines/runs/{id}/stream": probe("row", ({ ids }) => ({ params: { id: ids.run } })),
  "POST /management/pipelines/runs": body("row", ({ ids }) => ({ definition_id: ids.definition })),
  "POST /management/pipelines/runs/{id}/signal": probe("row", ({ ids }) => ({
    params: { id: ids.run },
    body: { signal_name: "human_review_decision", payload: { approved: true, reason: "" } }
  })),
  "POST /management/pipelines/runs/{id}/cancel": probe("row", ({ ids }) => ({ params: { id: ids.runToCancel } })),
  "POST /management/pipelines/runs/{id}/terminate": probe("row", ({ ids }) => ({ params: { id: ids.runToTerminate } })),

  "GET /developer/v1/keys": own,
  "GET /developer/v1/keys/{id}": probe("row", ({ ids }) => ({ params: { id: ids.developerKey } })),
  "GET /developer/v1/models/available": probe("shared"),
  "GET /developer/v1/spend": own,
  "GET /developer/v1/spend/logs": own,
  "GET /developer/v1/usage": own,
  "GET /developer/v1/audit": own,
  "POST /developer/v1/keys": body("create", ({ ids }) => ({ key_alias: "another", user_id: ids.user })),

  "DELETE /developer/v1/keys/{id}": probe("row", ({ ids }) => ({ params: { id: ids.developerKey } })),
  "POST /key/{key}/regenerate": probe("row", ({ ids }) => ({ params: { key: ids.token } })),
  "POST /key/delete": body("row", ({ ids }) => ({ key_id: ids.key, key_aliases: [sharedName] })),
  "POST /customer/delete": body("row", ({ ids }) => ({ customer_id: ids.customer })),
  "POST /budget/delete": body("name", () => ({ budget_id: sharedName })),
  "POST /guardrail/delete": body("row", ({ ids }) => ({ guardrail_id: ids.guardrail })),
  "POST /callback/delete": body("row", ({ ids }) => ({ callback_id: ids.callback })),
  "POST /tag/delete": body("row", ({ ids }) => ({ tag_id: ids.tag })),
  "DELETE /management/v1/catalog/tags": body("name", () => ({ ns: "ns", key: sharedName, target })),
  "DELETE /management/v1/groups/{id}": probe("row", ({ ids }) => ({ params: { id: ids.group } })),
  "POST /team/delete": body("row", ({ ids }) => ({ team_id: ids.team })),
  "POST /organization/delete": body("row", ({ ids }) => ({ organization_id: ids.organization })),
  "POST /user/delete": body("row", ({ ids }) => ({ user_id: ids.user }))
}

/** Does not end while its run waits. */
const endless = "GET /management/pipelines/runs/{id}/stream"
/** Answers 200 whatever it finds. */
const answersWhatItDeleted = "POST /key/delete"

/** Areas that are not served whole yet; their probes come with them. */
const pending = /^\/management\/v1\/(trino|catalog\/vector-tables)(\/|$)/

const walked = declaredOperations().filter(
  ({ access, path }) =>
    access !== "model" && access !== "client_certificate" && !path.startsWith("/v1/") && !pending.test(path)
)
const operations = walked.map(({ method, path }) => `${method} ${path}`)
const inOrder = Object.keys(probes).filter((operation) => operations.includes(operation))

describe("the walk over tenants", () => {
  it("has a probe for every management and developer route that is served", () => {
    assert.deepStrictEqual(
      operations.filter((operation) => probes[operation] === undefined),
      []
    )
  })
})

describe.each([
  ["acme", "globex"],
  ["globex", "acme"]
])("%s as seen from %s", (victimTenant, strangerTenant) => {
  let database: OpenDatabase
  let gateway: Gateway
  let victim: World
  let stranger: World

  beforeAll(async () => {
    database = await openDatabase()
    gateway = await startGateway({ databaseUrl: database.url, env: { GATEWAY_TENANTS: "acme,globex" } })
    victim = await makeWorld(gateway, database, victimTenant)
    // That this works shows that no name which the first tenant uses is taken for the second.
    stranger = await makeWorld(gateway, database, strangerTenant)
  })
  afterAll(async () => {
    await gateway.stop()
    await database.close()
  })

  const send = (operation: string, caller: World, call: Call): Promise<Reply> => {
    const [method = "", template = ""] = operation.split(" ")
    const path = template.replaceAll(/\{([^}]+)\}/g, (_, name: string) => call.params?.[name] ?? "")
    return gateway.request(method, path + (call.query === undefined ? "" : `?${call.query}`), {
      ...(method === "GET" ? {} : { body: call.body ?? {} }),
      headers: template.startsWith("/developer/") ? caller.developer : caller.administrator
    })
  }

  /** All that a tenant can read of itself. */
  const everythingOf = async (world: World): Promise<ReadonlyArray<string>> => {
    const reads = inOrder.filter(
      (operation) =>
        operation.startsWith("GET ") &&
        operation !== endless &&
        !["instance", "shared"].includes(probes[operation]!.about)
    )
    const texts: Array<string> = []
    for (const operation of reads) {
      const reply = await send(operation, world, probes[operation]!.call(world))
      texts.push(`${operation} ${reply.status} ${reply.text}`)
    }
    return texts
  }

  it("each tenant sees its own rows", async () => {
    for (const world of [victim, stranger]) {
      const everything = await everythingOf(world)
      for (const text of everything) assert.match(text, /^GET \S+ 200 /)
      const seen = everything.filter((text) => leakIn(text, world) !== undefined).map((text) => text.split(" ")[1])
      // A sum has no text of the tenant's own.
      const silent = everything.map((text) => text.split(" ")[1]).filter((path) => !seen.includes(path))
      assert.deepStrictEqual(silent, ["/developer/v1/spend"])
    }
  })

  for (const operation of inOrder) {
    it(operation, async () => {
      const { about, call } = probes[operation]!
      const before = await everythingOf(victim)
      const reply = await send(operation, stranger, call(victim))
      const seen = `${reply.status} ${reply.text}`
      assert.isBelow(reply.status, 500, seen)
      assert.isUndefined(leakIn(reply.text, victim), seen)
      if (about === "instance") assert.strictEqual(reply.status, 403, seen)
      if (about === "row" && operation !== answersWhatItDeleted) assert.include([400, 403, 404], reply.status, seen)
      if (about === "own" || about === "name" || about === "shared") assert.include([200, 201], reply.status, seen)
      if (about === "create") assert.include([200, 201], reply.status, seen)
      assert.deepStrictEqual(await everythingOf(victim), before)
    })
  }

  it("every one of these requests works for the owner", async () => {
    for (const operation of inOrder) {
      const { about, call } = probes[operation]!
      if (about === "instance" || about === "create" || operation === endless) continue
      const reply = await send(operation, victim, call(victim))
      assert.include([200, 201, 202, 204], reply.status, `${operation}: ${reply.text}`)
    }
  })
})
