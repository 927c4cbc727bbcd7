/** Datasets, suites, jobs, workers, traces and sessions over HTTP, with two tenants. */
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { type OpenDatabase, openDatabase, until } from "#test/support/acceptance.ts"
import { administratorToken } from "#test/support/administrators.ts"
import { type Gateway, masterKey, type Reply, startGateway } from "#test/support/Gateway.ts"
import { WebhookReceiver } from "#test/support/WebhookReceiver.ts"

let database: OpenDatabase
let gateway: Gateway
let receiver: WebhookReceiver
const tokens = { acme: "", globex: "", viewer: "", organization: "", cross: "", acmeKey: "", globexKey: "", masterKey }

beforeAll(async () => {
  database = await openDatabase()
  receiver = await WebhookReceiver.start()
  gateway = await startGateway({
    databaseUrl: database.url,
    env: {
      GATEWAY_TENANTS: "globex,acme",
      GATEWAY_ALLOW_PRIVATE_CALLBACKS: "true",
      GATEWAY_EVAL_LEASE_TIMEOUT: "1 second"
    }
  })
  tokens.acme = await administratorToken({ sub: "ann", tenant: "acme" })
  tokens.globex = await administratorToken({ sub: "gus", tenant: "globex" })
  tokens.viewer = await administratorToken({ sub: "vic", tenant: "acme", role: "viewer" })
  tokens.organization = await administratorToken({ tenant: "acme", role: "org_admin", organization_id: "org-1" })
  tokens.cross = await administratorToken({ sub: "cro", tenant: "globex", entitlements: ["cross_tenant_admin"] })
  tokens.acmeKey = (await gateway.key({ tenant: "acme" })).key
  tokens.globexKey = (await gateway.key({ tenant: "globex" })).key
})

afterAll(async () => {
  await gateway.stop()
  await database.close()
  await receiver.stop()
})

type Who = keyof typeof tokens

const as = (who: Who, method: string, path: string, body?: unknown) =>
  gateway.request(method, path, { token: tokens[who], body })

const expectStatus = (reply: Reply, status: number): Reply => {
  assert.strictEqual(reply.status, status, reply.text)
  return reply
}

const json = <A>(reply: Reply): A => reply.json as A

const failure = (reply: Reply) =>
  json<{ readonly error: { readonly type: string; readonly code: string; readonly param?: string } }>(reply).error

const content = (more: object = {}) => ({
  name: "content",
  storage_format: "parquet",
  table_ref: { snapshot_ids: ["1"] },
  ...more
})

const newDataset = async (name: string, who: Who = "acme") =>
  json<{ asset_id: string; version: number }>(
    expectStatus(await as(who, "POST", "/management/dataset/new", { name, content: content() }), 201)
  )

interface Dataset {
  readonly asset_id: string
  readonly name: string
  readonly version: number
  readonly item_count: number
  readonly content: { readonly provenance: { readonly items: ReadonlyArray<Record<string, unknown>> } }
}

const datasets = async (who: Who): Promise<ReadonlyArray<Dataset>> =>
  json<{ data: ReadonlyArray<Dataset> }>(expectStatus(await as(who, "GET", "/management/dataset/list"), 200)).data

const newSuite = async (more: object = {}, who: Who = "acme") =>
  json<{ asset_id: string; version: number }>(
    expectStatus(
      await as(who, "POST", "/management/eval_suite/new", {
        name: `suite-${Math.random()}`,
        content: {
          name: "suite",
          eval_type: "exact_match",
          test_cases: [
            { id: "a", input: "1+1", expected: "2" },
            { id: "b", input: "2+2", expected: "4" }
          ],
          ...more
        }
      }),
      201
    )
  )

const newJob = async (body: object, who: Who = "acme") =>
  json<{ eval_job_id: string; pipeline_run_id: string; status: string }>(
    expectStatus(await as(who, "POST", "/management/eval_job/new", body), 201)
  )

interface Item {
  readonly test_case_id: string
  readonly seed: number | null
  readonly temperature: number
  readonly input: unknown
}

const pull = async (jobId: string, body: object = { worker_id: "w", batch_size: 10 }, who: Who = "acmeKey") =>
  json<{ items: ReadonlyArray<Item> }>(expectStatus(await as(who, "POST", `/v1/eval_job/${jobId}/pull`, body), 200))
    .items

const chat = { model: "sandbox/chat", messages: [{ role: "user", content: "Hello" }] }

describe("datasets", () => {
  it("are made, appended to and listed in their tenant alone", async () => {
    const { asset_id: id, version } = await newDataset("numbers")
    assert.strictEqual(version, 1)
    const replies = await Promise.all(
      [1, 2].map((n) => as("acme", "POST", `/management/dataset/${id}/items`, { items: [{ input: n }, { input: -n }] }))
    )
    for (const reply of replies) assert.deepStrictEqual(json(expectStatus(reply, 200)), { appended: 2 })
    const found = (await datasets("viewer")).find((one) => one.asset_id === id)
    assert.deepInclude(found, { version: 3, item_count: 4, name: "numbers" })
    assert.sameMembers(
      found!.content.provenance.items.map(({ input }) => input),
      [1, -1, 2, -2]
    )
    assert.notInclude(
      (await datasets("globex")).map((one) => one.asset_id),
      id
    )
    assert.notInclude(
      (await datasets("organization")).map((one) => one.asset_id),
      id
    )
    for (const who of ["globex", "organization"] as const) {
      expectStatus(await as(who, "POST", `/management/dataset/${id}/items`, { items: [{}] }), 404)
      expectStatus(await as(who, "POST", `/management/dataset/${id}/sample_from_production`, { sample_size: 1 }), 404)
    }
  })

  it("refuse what they must, each with its field", async () => {
    const { asset_id: id } = await newDataset("refusing")
    const { storage_format: _, ...incomplete } = content()
    const cases: ReadonlyArray<readonly [Who, string, unknown, number, string, string | undefined]> = [
      [
        "acme",
        "/management/dataset/new",
        { name: "x", content: incomplete },
        400,
        "missing_field",
        "content.storage_format"
      ],
      ["acme", "/management/dataset/new", { name: "x" }, 400, "missing_field", "content"],
      [
        "acme",
        "/management/dataset/new",
        { content: content({ table_ref: 1 }) },
        400,
        "invalid_value",
        "content.table_ref"
      ],
      ["acme", `/management/dataset/${id}/items`, { items: [] }, 400, "invalid_value", "items"],
      ["acme", `/management/dataset/${id}/items`, { items: [1] }, 400, "invalid_value", "items.0"],
      ["acme", `/management/dataset/${id}/items`, { items: [{ input: "\0" }] }, 400, "invalid_value", "items"],
      ["acme", `/management/dataset/${id}/items`, {}, 400, "missing_field", "items"],
      [
        "acme",
        `/management/dataset/${id}/sample_from_production`,
        { sample_size: 0 },
        400,
        "invalid_value",
        "sample_size"
      ],
      ["viewer", `/management/dataset/${id}/items`, { items: [{}] }, 403, "insufficient_permissions", undefined],
      ["acme", "/management/dataset/no-dataset/items", { items: [{}] }, 404, "resource_not_found", undefined]
    ]
    for (const [who, path, body, status, code, param] of cases) {
      const reply = expectStatus(await as(who, "POST", path, body), status)
      assert.deepInclude(failure(reply), param === undefined ? { code } : { code, param }, reply.text)
    }
    expectStatus(await as("acmeKey", "GET", "/management/dataset/list"), 401)
  })

  it("sample the caller's own tenant's production", async () => {
    for (let n = 0; n < 3; n++) expectStatus(await as("acmeKey", "POST", "/v1/chat/completions", chat), 200)
    expectStatus(await as("globexKey", "POST", "/v1/chat/completions", chat), 200)
    const { asset_id: id } = await newDataset("sampled")
    const reply = await as("acme", "POST", `/management/dataset/${id}/sample_from_production`, { sample_size: 5000 })
    assert.deepStrictEqual(json(expectStatus(reply, 200)), { sampled: 3 })
    const found = (await datasets("acme")).find((one) => one.asset_id === id)
    assert.deepStrictEqual(
      found!.content.provenance.items.map(({ input }) => (input as { model: string }).model),
      ["sandbox/chat", "sandbox/chat", "sandbox/chat"]
    )
  })
})

describe("eval suites", () => {
  it("grow by versions, shown newest first", async () => {
    const body = (threshold: number) => ({
      name: "growing",
      content: { name: "growing", eval_type: "exact", test_cases: [{ input: 1 }], pass_threshold: threshold }
    })
    const first = json<{ asset_id: string; version: number }>(
      expectStatus(await as("acme", "POST", "/management/eval_suite/new", body(0.1)), 201)
    )
    const second = json<{ asset_id: string; version: number }>(
      expectStatus(await as("acme", "POST", "/management/eval_suite/new", body(0.2)), 201)
    )
    assert.deepStrictEqual([first.version, second], [1, { asset_id: first.asset_id, version: 2 }])
    const path = `/management/eval_suite/${first.asset_id}/versions`
    const { data } = json<{ data: ReadonlyArray<{ version: number; content: { pass_threshold: number } }> }>(
      expectStatus(await as("acme", "GET", path), 200)
    )
    assert.deepStrictEqual(
      data.map((one) => [one.version, one.content.pass_threshold]),
      [
        [2, 0.2],
        [1, 0.1]
      ]
    )
    expectStatus(await as("globex", "GET", path), 404)
  })
})

describe("eval jobs", () => {
  it("run from creation to verdict, with provenance, callback and traces", async () => {
    const made = await as("acme", "POST", "/callback/new", {
      url: receiver.url,
      events: ["eval_job.completed"],
      secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    })
    assert.isBelow(made.status, 300, made.text)
    const suite = await newSuite({ pass_threshold: 0.75 })
    const dataset = await newDataset("job's")
    await as("acme", "POST", `/management/dataset/${dataset.asset_id}/items`, {
      items: [{ id: "d", input: { q: 1 }, weight: 2 }]
    })
    const job = await newJob({
      eval_suite_id: suite.asset_id,
      dataset_snapshot_ids: [dataset.asset_id],
      reproducibility_seed: 1234,
      model_version: "m-1"
    })
    assert.strictEqual(job.status, "created")
    const items = await pull(job.eval_job_id)
    assert.deepStrictEqual(
      items.map(({ seed, temperature, test_case_id }) => [test_case_id, seed, temperature]),
      [
        ["a", 1234, 0],
        ["b", 1234, 0],
        ["d", 1234, 0]
      ]
    )
    assert.deepStrictEqual(await pull(job.eval_job_id), [])
    const early = json<object>(
      expectStatus(await as("acme", "GET", `/management/eval_job/${job.eval_job_id}/results`), 200)
    )
    assert.notProperty(early, "verdict")
    const score = (testCase: string, value: number) =>
      as("acmeKey", "POST", "/v1/scores", {
        eval_job_id: job.eval_job_id,
        test_case_id: testCase,
        score: value,
        label: "ok",
        scored_by: "judge-1"
      })
    assert.deepStrictEqual(json(expectStatus(await score("a", 1), 200)), {
      pending: true,
      completed: false,
      score_count: 1
    })
    assert.deepStrictEqual(json(await score("a", 0)), { pending: true, completed: false, score_count: 1 })
    await score("b", 0)
    const decided = { pending: false, completed: true, score_count: 3, aggregate_score: 0.75, verdict: "pass" }
    assert.deepStrictEqual(json(expectStatus(await score("d", 1), 200)), decided)
    assert.deepStrictEqual(json(expectStatus(await score("d", 1), 200)), decided)
    const shown = json<Record<string, unknown>>(
      expectStatus(await as("viewer", "GET", `/management/eval_job/${job.eval_job_id}`), 200)
    )
    assert.deepInclude(shown, {
      eval_job_id: job.eval_job_id,
      tenant_id: "acme",
      eval_suite_version: 1,
      pipeline_run_id: job.pipeline_run_id,
      status: "completed",
      pipeline_run_status: "completed",
      reproducibility_seed: 1234,
      aggregate_score: 0.75,
      verdict: "pass"
    })
    const results = json<{ scores: ReadonlyArray<{ test_case_id: string; score: number }>; result: object }>(
      expectStatus(await as("acme", "GET", `/management/eval_job/${job.eval_job_id}/results`), 200)
    )
    assert.deepStrictEqual(
      results.scores.map((one) => [one.test_case_id, one.score]),
      [
        ["a", 1],
        ["b", 0],
        ["d", 1]
      ]
    )
    const entries = await database.query<{ action: string }>(
      `SELECT action FROM tenant_acme.provenance_entries WHERE resource_id IN ($1, $2) ORDER BY sequence_number`,
      [job.eval_job_id, job.pipeline_run_id]
    )
    assert.deepStrictEqual(
      entries.map(({ action }) => action),
      [
        "pipeline.run.start",
        "gen_ai.evaluation.result",
        "gen_ai.evaluation.result",
        "pipeline.run.completed",
        "gen_ai.evaluation.result",
        "eval_job.completed"
      ]
    )
    const delivered = await until(
      async () =>
        receiver.received.map(({ body }) => JSON.parse(body) as { type: string; data: { eval_job_id: string } }),
      (bodies) => bodies.some(({ type }) => type === "eval_job.completed")
    )
    assert.strictEqual(delivered[0]!.data.eval_job_id, job.eval_job_id)
  })

  it("resurface after the lease, and end only when every case is scored", async () => {
    const suite = await newSuite()
    const job = await newJob({ eval_suite_id: suite.asset_id })
    assert.strictEqual((await pull(job.eval_job_id)).length, 2)
    const again = await until(
      () => pull(job.eval_job_id, { worker_id: "second" }),
      (items) => items.length > 0
    )
    assert.deepStrictEqual(
      again.map(({ test_case_id }) => test_case_id),
      ["a", "b"]
    )
  })

  it("are their tenant's: 404 by id, 403 for naming a tenant, and an audited override", async () => {
    const suite = await newSuite()
    const job = await newJob({ eval_suite_id: suite.asset_id })
    for (const path of ["", "/results"]) {
      expectStatus(await as("globex", "GET", `/management/eval_job/${job.eval_job_id}${path}`), 404)
      expectStatus(await as("acme", "GET", `/management/eval_job/nonsense${path}`), 404)
    }
    assert.deepStrictEqual(await pull(job.eval_job_id, { worker_id: "w" }, "globexKey"), [])
    const foreign = await as("globexKey", "POST", "/v1/scores", {
      eval_job_id: job.eval_job_id,
      test_case_id: "a",
      score: 1
    })
    expectStatus(foreign, 404)
    const forbidden = expectStatus(await as("acme", "GET", "/management/eval_job/list?tenant=globex"), 403)
    assert.deepInclude(failure(forbidden), { code: "tenant_override_forbidden" })
    const overrides = () =>
      database.query<{ actor: string }>(
        "SELECT actor FROM tenant_acme.provenance_entries WHERE action = 'eval_job.tenant_override' ORDER BY sequence_number"
      )
    assert.deepStrictEqual(await overrides(), [])
    for (const who of ["masterKey", "cross"] as const) {
      const reply = expectStatus(await as(who, "GET", "/management/eval_job/list?tenant=acme&limit=1"), 200)
      const { jobs, total } = json<{ jobs: ReadonlyArray<Record<string, unknown>>; total: number }>(reply)
      assert.deepInclude(jobs[0], { eval_job_id: job.eval_job_id, status: "created" })
      assert.notProperty(jobs[0], "aggregate_score")
      assert.isAbove(total, 1)
    }
    assert.deepStrictEqual(
      (await overrides()).map(({ actor }) => actor),
      ["master_key", "user:cro"]
    )
    expectStatus(await as("masterKey", "GET", "/management/eval_job/list?tenant=nobody"), 400)
    expectStatus(await as("masterKey", "GET", `/management/eval_job/${job.eval_job_id}`), 200)
    assert.deepStrictEqual(json(expectStatus(await as("globex", "GET", "/management/eval_job/list"), 200)), {
      jobs: [],
      total: 0
    })
  })

  it("refuse what they must, each with its field", async () => {
    const suite = await newSuite()
    const job = await newJob({ eval_suite_id: suite.asset_id })
    const id = job.eval_job_id
    const scored = { eval_job_id: id, test_case_id: "a", score: 1 }
    const cases: ReadonlyArray<readonly [Who, string, string, unknown, number, string | undefined]> = [
      ["acme", "POST", "/management/eval_job/new", {}, 400, "eval_suite_id"],
      ["acme", "POST", "/management/eval_job/new", { eval_suite_id: id }, 400, "eval_suite_id"],
      [
        "acme",
        "POST",
        "/management/eval_job/new",
        { eval_suite_id: suite.asset_id, eval_suite_version: 7 },
        400,
        "eval_suite_version"
      ],
      [
        "acme",
        "POST",
        "/management/eval_job/new",
        { eval_suite_id: suite.asset_id, reproducibility_seed: 1.5 },
        400,
        "reproducibility_seed"
      ],
      ["globex", "POST", "/management/eval_job/new", { eval_suite_id: suite.asset_id }, 400, "eval_suite_id"],
      ["viewer", "POST", "/management/eval_job/new", { eval_suite_id: suite.asset_id }, 403, undefined],
      ["acme", "GET", "/management/eval_job/list?status=odd", undefined, 400, "status"],
      ["acme", "GET", "/management/eval_job/list?limit=0", undefined, 400, "limit"],
      ["acmeKey", "POST", `/v1/eval_job/${id}/pull`, {}, 400, "worker_id"],
      ["acmeKey", "POST", `/v1/eval_job/${id}/pull`, { worker_id: "w", batch_size: 0 }, 400, "batch_size"],
      ["acmeKey", "POST", "/v1/scores", { ...scored, score: 1.01 }, 400, "score"],
      ["acmeKey", "POST", "/v1/scores", { ...scored, score: "1" }, 400, "score"],
      ["acmeKey", "POST", "/v1/scores", { eval_job_id: id, score: 1 }, 400, "test_case_id"],
      ["acmeKey", "POST", "/v1/scores", { ...scored, test_case_id: "z" }, 404, undefined],
      ["acmeKey", "POST", "/v1/scores", { ...scored, eval_job_id: "z" }, 404, undefined],
      ["acme", "POST", "/v1/scores", scored, 401, undefined]
    ]
    for (const [who, method, path, body, status, param] of cases) {
      const reply = expectStatus(await as(who, method, path, body), status)
      if (param !== undefined) assert.strictEqual(failure(reply).param, param, reply.text)
    }
  })
})

interface Trace {
  readonly id: string
  readonly sequence_number: number
  readonly action: string
  readonly tenant_id: string
  readonly request_id: string
}

describe("traces and sessions", () => {
  const traces = async (who: Who, query = "") =>
    json<{ object: string; data: ReadonlyArray<Trace> }>(expectStatus(await as(who, "GET", `/v1/traces${query}`), 200))
      .data

  it("show a tenant's model calls, newest first, and nothing that administrators did", async () => {
    const reply = await gateway.request("POST", "/v1/chat/completions", {
      token: tokens.acmeKey,
      body: chat,
      headers: { "x-request-id": "session-of-two-calls" }
    })
    expectStatus(reply, 200)
    const found = await traces("acmeKey")
    assert.deepInclude(found[0], { action: "gen_ai.chat", tenant_id: "acme", request_id: "session-of-two-calls" })
    assert.isTrue(found.every(({ action }) => /^(gen_ai|udf)\./.test(action)))
    const numbers = found.map((one) => one.sequence_number)
    assert.deepStrictEqual(
      numbers,
      numbers.toSorted((a, b) => b - a)
    )
    const [first] = found
    assert.deepStrictEqual(json(expectStatus(await as("acmeKey", "GET", `/v1/traces/${first!.id}`), 200)), first)
    expectStatus(await as("globexKey", "GET", `/v1/traces/${first!.id}`), 404)
    expectStatus(await as("acmeKey", "GET", "/v1/traces/nonsense"), 404)
    assert.notInclude(
      (await traces("globexKey")).map(({ id }) => id),
      first!.id
    )
    const [audit] = await database.query<{ id: string }>(
      "SELECT id FROM tenant_acme.provenance_entries WHERE action LIKE 'dataset.%' LIMIT 1"
    )
    expectStatus(await as("acmeKey", "GET", `/v1/traces/${audit!.id}`), 404)
  })

  it("clamp what is out of range instead of refusing it", async () => {
    const all = await traces("acmeKey", "?limit=100000")
    assert.deepStrictEqual(await traces("acmeKey", "?limit=-3"), all.slice(0, 1))
    assert.deepStrictEqual(await traces("acmeKey", "?limit=2&offset=-5"), all.slice(0, 2))
    assert.deepStrictEqual(await traces("acmeKey", "?limit=2&offset=1"), all.slice(1, 3))
    assert.deepStrictEqual(await traces("acmeKey", "?limit=many&offset=some"), all.slice(0, 100))
    assert.deepStrictEqual(await traces("acmeKey", "?offset=9007199254740993000"), [])
  })

  it("roll what one request id did up into a session, the latest start first", async () => {
    await gateway.request("POST", "/v1/chat/completions", {
      token: tokens.acmeKey,
      body: chat,
      headers: { "x-request-id": "session-of-two-calls" }
    })
    expectStatus(await as("acmeKey", "POST", "/v1/chat/completions", chat), 200)
    const { data, object } = json<{
      object: string
      data: ReadonlyArray<{ request_id: string; event_count: number; actions: unknown; started_at: string }>
    }>(expectStatus(await as("acmeKey", "GET", "/v1/sessions"), 200))
    assert.strictEqual(object, "list")
    const session = data.find(({ request_id }) => request_id === "session-of-two-calls")
    assert.deepInclude(session, { event_count: 2, actions: ["gen_ai.chat"] })
    assert.notStrictEqual(data[0]!.request_id, "session-of-two-calls")
    const starts = data.map(({ started_at }) => started_at)
    assert.deepStrictEqual(starts, starts.toSorted().toReversed())
    assert.strictEqual(new Set(data.map(({ request_id }) => request_id)).size, data.length)
    const other = json<{ data: ReadonlyArray<{ request_id: string }> }>(await as("globexKey", "GET", "/v1/sessions"))
    assert.isFalse(other.data.some(({ request_id }) => request_id === "session-of-two-calls"))
  })
})
