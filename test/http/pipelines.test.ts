/** The pipeline operations and docs/pipelines.md, on a started gateway that is killed in between. */
import { readFileSync } from "node:fs"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { type OpenDatabase, openDatabase, registerModel, until } from "#test/support/acceptance.ts"
import { administratorToken } from "#test/support/administrators.ts"
import { type Gateway, startGateway } from "#test/support/Gateway.ts"
import { StubUpstream } from "#test/support/StubUpstream.ts"

interface Example {
  readonly source: string
  readonly inputs: object
  readonly signal?: object
  readonly status: string
  readonly outputs?: object
  readonly error?: string
}

const examples: ReadonlyArray<Example> = [
  ...readFileSync(new URL("../../docs/pipelines.md", import.meta.url), "utf8").matchAll(
    /```yaml\n(.*?)```\n\n```json\n(.*?)```/gs
  )
].map(([, source = "", json = ""]) => ({ source, ...(JSON.parse(json) as Omit<Example, "source">) }))

type Body = { readonly [name: string]: unknown }
const root = "/management/pipelines"

let database: OpenDatabase
let gateway: Gateway

const register = async (source: string): Promise<Body> => {
  const reply = await gateway.admin("POST", `${root}/definitions`, { dsl_source: source })
  assert.strictEqual(reply.status, 201, reply.text)
  return reply.json as Body
}

const start = async (source: string, inputs: object = {}): Promise<string> => {
  const { asset_id: definition } = await register(source)
  const reply = await gateway.admin("POST", `${root}/runs`, { definition_id: definition, initial_inputs: inputs })
  assert.strictEqual(reply.status, 202, reply.text)
  return (reply.json as { readonly run_id: string }).run_id
}

const run = async (id: string): Promise<Body> => (await gateway.admin("GET", `${root}/runs/${id}`)).json as Body

const over = (id: string, ...also: ReadonlyArray<string>) =>
  until(
    () => run(id),
    ({ status }) => ["completed", "failed", "cancelled", "terminated", ...also].includes(String(status)),
    20_000
  )

const review = "name: review\nsteps:\n- {id: check, operator: human_review, with: {title: t}}"

beforeAll(async () => {
  database = await openDatabase()
  gateway = await startGateway({ databaseUrl: database.url })
}, 60_000)

afterAll(async () => {
  await gateway.stop()
  await database.close()
})

describe("docs/pipelines.md", () => {
  it("has examples", () => assert.isAtLeast(examples.length, 8))

  for (const { error, inputs, outputs, signal, source, status } of examples) {
    it(/name: (\S+)/.exec(source)?.[1] ?? "", async () => {
      const id = await start(source, inputs)
      if (signal !== undefined) {
        await over(id, "awaiting_review")
        const reply = await gateway.admin("POST", `${root}/runs/${id}/signal`, {
          signal_name: "human_review_decision",
          payload: signal
        })
        assert.strictEqual(reply.status, 200, reply.text)
        assert.strictEqual(reply.text, "")
      }
      const ended = await over(id)
      assert.strictEqual(ended["status"], status, JSON.stringify(ended))
      if (outputs !== undefined) assert.deepStrictEqual(ended["outputs"], outputs)
      if (error !== undefined) assert.strictEqual((ended["error"] as Body)["code"], error)
    })
  }
})

describe("pipeline operations", () => {
  it("definitions have versions, and workflow types name them", async () => {
    const first = await register("name: versions\nsteps: [{id: a, operator: transform, with: 1}]")
    const second = await register("name: versions\nsteps: [{id: a, operator: transform, with: 2}]")
    assert.strictEqual(first["asset_id"], second["asset_id"])
    assert.deepStrictEqual([first["version"], second["version"]], [1, 2])
    assert.strictEqual(second["workflow_type"], `pipeline_${String(second["asset_id"]).slice(0, 8)}_v2`)
    const found = (await gateway.admin("GET", `${root}/definitions/${String(first["asset_id"])}`)).json as Body
    assert.deepInclude(found, { name: "versions", current_version: 2 })
    assert.match(String(found["content_hash"]), /^[0-9a-f]{64}$/)
    const { data } = (await gateway.admin("GET", `${root}/definitions`)).json as { data: ReadonlyArray<Body> }
    assert.include(
      data.map(({ asset_id: id }) => id),
      first["asset_id"]
    )
    const pinned = await gateway.admin("POST", `${root}/runs`, {
      definition_id: first["asset_id"],
      definition_version: "1"
    })
    const ended = await over(String((pinned.json as Body)["run_id"]))
    assert.deepInclude(ended, { definition_version: 1, workflow_type: first["workflow_type"] })
  })

  const refusals: ReadonlyArray<readonly [string, string, object | string, number, string, string?]> = [
    ["definitions", "a fault", { dsl_source: "name: p\nsteps: 1" }, 400, "invalid_value", "dsl_source"],
    ["definitions", "no source", { name: "x" }, 400, "missing_field", "dsl_source"],
    ["definitions", "another type", { dsl_source: 1 }, 400, "invalid_value", "dsl_source"],
    ["runs", "no definition", {}, 400, "missing_field", "definition_id"],
    ["runs", "an unknown definition", { definition_id: "x" }, 404, "resource_not_found"],
    ["runs", "a strange version", { definition_id: "x", definition_version: "new" }, 400, "invalid_value"],
    [
      "runs",
      "inputs that are none",
      { definition_id: "x", initial_inputs: [] },
      400,
      "invalid_value",
      "initial_inputs"
    ],
    ["runs/x/signal", "an unknown run", { signal_name: "human_review_decision" }, 404, "resource_not_found"],
    ["runs/x/terminate", "an unknown run", "", 404, "resource_not_found"],
    ["runs/x/cancel", "an unknown run", "", 404, "resource_not_found"]
  ]
  for (const [path, what, body, status, code, param] of refusals) {
    it(`POST ${path} refuses ${what}`, async () => {
      const reply = await gateway.admin("POST", `${root}/${path}`, body === "" ? undefined : body)
      assert.strictEqual(reply.status, status, reply.text)
      const { error } = reply.json as { error: { code: string; param?: string } }
      assert.strictEqual(error.code, code)
      if (param !== undefined) assert.strictEqual(error.param, param)
    })
  }

  it("checks inputs against the definition's schema and versions that there are", async () => {
    const { asset_id: id } = await register(
      "name: typed\ninputs: {type: object, required: [a], properties: {b: {type: integer}}}\n" +
        "steps: [{id: s, operator: transform, with: 1}]"
    )
    for (const [inputs, param] of [
      [{}, "initial_inputs.a"],
      [{ a: 1, b: "x" }, "initial_inputs.b"]
    ] as const) {
      const reply = await gateway.admin("POST", `${root}/runs`, { definition_id: id, initial_inputs: inputs })
      assert.deepStrictEqual([reply.status, (reply.json as { error: Body }).error["param"]], [400, param])
    }
    const none = await gateway.admin("POST", `${root}/runs`, { definition_id: id, definition_version: "9" })
    assert.strictEqual(none.status, 404)
  })

  it("history comes in pages, the last without a token", async () => {
    const id = await start("name: pages\nsteps: [{id: a, operator: transform, with: 1}]")
    await over(id)
    const page = async (query: string) =>
      (await gateway.admin("GET", `${root}/runs/${id}/history${query}`)).json as {
        readonly data: ReadonlyArray<Body>
        readonly next_page_token?: string
      }
    const whole = await page("")
    assert.deepStrictEqual(
      whole.data.map(({ event_type: type }) => type),
      ["run_started", "step_started", "step_completed", "run_completed"]
    )
    assert.isFalse("next_page_token" in whole)
    const first = await page("?limit=3")
    assert.lengthOf(first.data, 3)
    const last = await page(`?limit=3&next_page_token=${first.next_page_token}`)
    assert.deepStrictEqual(last, { data: [whole.data[3]!] })
    assert.lengthOf((await page("?limit=4")).data, 4)
    assert.isFalse("next_page_token" in (await page("?limit=4")))
  })

  it("signals are checked, decide once, and reviews are listed while they wait", async () => {
    const id = await start(review)
    await over(id, "awaiting_review")
    const { data } = (await gateway.admin("GET", `${root}/hitl/pending`)).json as { data: ReadonlyArray<Body> }
    const pending = data.find(({ run_id: run }) => run === id)
    assert.deepInclude(pending, { status: "awaiting_review", step_id: "", step_name: "", reviewer_role: "" })
    const signal = (body: object) => gateway.admin("POST", `${root}/runs/${id}/signal`, body)
    const name = "human_review_decision"
    assert.strictEqual((await signal({})).status, 400)
    assert.strictEqual((await signal({ signal_name: "other" })).status, 400)
    assert.strictEqual((await signal({ signal_name: name, payload: {} })).status, 400)
    assert.strictEqual((await signal({ signal_name: name, payload: { approved: "yes" } })).status, 400)
    assert.strictEqual((await signal({ signal_name: name, payload: { approved: true, step_id: "zzz" } })).status, 400)
    assert.strictEqual((await signal({ signal_name: name, payload: { approved: true } })).status, 200)
    assert.strictEqual((await over(id))["status"], "completed")
    const late = await signal({ signal_name: name, payload: { approved: true } })
    assert.strictEqual((late.json as { error: Body }).error["code"], "invalid_state")
  })

  it("streams a run to its end", async () => {
    const id = await start(review)
    await over(id, "awaiting_review")
    const response = await fetch(`${gateway.url}${root}/runs/${id}/stream`, {
      headers: { authorization: `Bearer mk-test-000000000000000000000000` }
    })
    assert.strictEqual(response.status, 200)
    assert.match(response.headers.get("content-type") ?? "", /^text\/event-stream/)
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader()
    let text = ""
    while (!text.includes("heartbeat")) text += (await reader.read()).value ?? ""
    const reply = await gateway.admin("POST", `${root}/runs/${id}/terminate`, { reason: "enough" })
    assert.strictEqual(reply.status, 200, reply.text)
    for (;;) {
      const { done, value = "" } = await reader.read()
      text += value
      if (done) break
    }
    const events = [...text.matchAll(/event: (\S+)\ndata: (.*)\n\n/g)].map(([, event, data]) => [
      event,
      (JSON.parse(data!) as Body)["status"]
    ])
    assert.deepStrictEqual(events[0], ["state-change", "awaiting_review"])
    assert.deepStrictEqual(events.at(-1), ["terminal", "terminated"])
    const done = await gateway.admin("GET", `${root}/runs/${id}/stream`)
    assert.match(done.text, /^event: terminal\n/)
    assert.strictEqual((await gateway.admin("GET", `${root}/runs/nobody/stream`)).status, 404)
  })

  it("a tenant's administrator sees its own runs only, a viewer starts none", async () => {
    const token = await administratorToken({ class: "tenant", role: "tenant_admin", tenant: "acme" })
    const id = await start(review)
    const as = (method: string, path: string, body?: object) =>
      gateway.request(method, root + path, { token, ...(body === undefined ? {} : { body }) })
    assert.strictEqual((await as("GET", `/runs/${id}`)).status, 404)
    assert.deepStrictEqual((await as("GET", "/runs?limit=abc")).json, { data: [] })
    const forbidden = await as("GET", "/runs?tenant=globex")
    assert.deepStrictEqual(
      [forbidden.status, (forbidden.json as { error: Body }).error["code"]],
      [403, "tenant_override_forbidden"]
    )
    assert.strictEqual((await gateway.request("GET", `${root}/runs`)).status, 401)
    const viewer = await administratorToken({ class: "tenant", role: "viewer", tenant: "acme" })
    const cancel = await gateway.request("POST", `${root}/runs/${id}/cancel`, { token: viewer })
    assert.strictEqual(cancel.status, 403)
    assert.strictEqual((await gateway.admin("POST", `${root}/runs/${id}/cancel`)).status, 200)
    assert.strictEqual((await over(id))["status"], "cancelled")
  })

  it("models are called as who started the run: no key, its tenant", async () => {
    const token = await administratorToken({ class: "tenant", role: "tenant_admin", tenant: "acme", sub: "grace" })
    const as = async (method: string, path: string, body?: object) =>
      (await gateway.request(method, root + path, { token, ...(body === undefined ? {} : { body }) })).json as Body
    const { asset_id: definition } = await as("POST", "/definitions", {
      dsl_source: "name: asked\nsteps: [{id: a, operator: chat, with: {model: sandbox/chat, prompt: Hello}}]"
    })
    const { run_id: id } = await as("POST", "/runs", { definition_id: definition })
    const ended = await until(
      () => as("GET", `/runs/${String(id)}`),
      ({ status }) => status === "completed" || status === "failed"
    )
    assert.deepInclude(ended, { status: "completed", tenant_id: "acme", created_by: "user:grace" })
    const entries = () =>
      database.query<{ readonly actor: string }>(
        "SELECT actor FROM provenance_entries WHERE action = 'gen_ai.chat' AND request_id = $1",
        [`${String(id)}.a.1`]
      )
    assert.deepStrictEqual(await until(entries, ({ length }) => length === 1), [{ actor: "user:grace" }])
  })

  it("kill -9 in the middle of a map: the run goes on where it was, each finished item once", async () => {
    const stub = await StubUpstream.start()
    await registerModel(gateway, "slow", stub.url, {}, { model: "openai/slow?header_delay=60" })
    const id = await start(
      `name: killed\nsteps:\n- id: each\n  operator: map\n  with:\n    items: "\${[1..60]}"\n    concurrency: 4\n` +
        `    step: {operator: chat, with: {model: slow, prompt: "\${item}"}}\noutputs: {n: "\${$count(steps.each.output)}"}`
    )
    const completed = async () =>
      (
        await database.query<{ readonly n: number }>(
          `SELECT count(*)::int AS n FROM pipeline_run_events WHERE run_id = $1 AND event LIKE '%step_completed%'`,
          [id]
        )
      )[0]!.n
    await until(completed, (n) => n >= 10).catch(async (cause: unknown) => {
      throw new Error(JSON.stringify(await run(id)), { cause })
    })
    const { dataDir } = gateway
    await gateway.kill()
    assert.isBelow(await completed(), 61)
    gateway = await startGateway({ databaseUrl: database.url, dataDir })
    const ended = await over(id)
    assert.deepStrictEqual([ended["status"], ended["outputs"]], ["completed", { n: 60 }])
    assert.strictEqual(await completed(), 61)
    await stub.stop()
  }, 60_000)
})

describe("GATEWAY_WORKFLOW_ENGINE=off", () => {
  it("answers 503 where an engine is needed, and reads on", async () => {
    const off = await startGateway({ databaseUrl: database.url, env: { GATEWAY_WORKFLOW_ENGINE: "off" } })
    try {
      for (const [method, path, body] of [
        ["POST", "/runs", { definition_id: "x" }],
        ["GET", "/runs/x/history", undefined],
        ["POST", "/runs/x/cancel", undefined],
        ["POST", "/runs/x/terminate", undefined],
        ["POST", "/runs/x/signal", { signal_name: "human_review_decision" }]
      ] as const) {
        const reply = await off.admin(method, root + path, body)
        assert.strictEqual(reply.status, 503, path)
        assert.strictEqual((reply.json as { error: Body }).error["code"], "workflow_engine_not_configured")
      }
      assert.strictEqual((await off.admin("GET", `${root}/runs`)).status, 200)
    } finally {
      await off.stop()
    }
  }, 60_000)
})
