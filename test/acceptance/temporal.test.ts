/** Gateway, `sluice worker` and a Temporal server, each a process of its own. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { type OpenDatabase, openDatabase, registerModel, until } from "#test/support/acceptance.ts"
import { sluice } from "#test/support/command.ts"
import { type Gateway, masterKey, startGateway } from "#test/support/Gateway.ts"
import { type PipelineWorkerProcess, startPipelineWorker } from "#test/support/PipelineWorkerProcess.ts"
import { StubUpstream } from "#test/support/StubUpstream.ts"
import { temporalServer } from "#test/support/temporal.ts"

type Body = { readonly [name: string]: unknown }
const root = "/management/pipelines"

const server = await temporalServer()
afterAll(() => server.close())

const start = async (gateway: Gateway, source: string, inputs: object = {}): Promise<string> => {
  const registered = await gateway.admin("POST", `${root}/definitions`, { dsl_source: source })
  assert.strictEqual(registered.status, 201, registered.text)
  const { asset_id: definition } = registered.json as Body
  const reply = await gateway.admin("POST", `${root}/runs`, { definition_id: definition, initial_inputs: inputs })
  assert.strictEqual(reply.status, 202, reply.text)
  return (reply.json as { readonly run_id: string }).run_id
}

const over = (gateway: Gateway, id: string, ...also: ReadonlyArray<string>) =>
  until(
    async () => (await gateway.admin("GET", `${root}/runs/${id}`)).json as Body,
    ({ status }) => ["completed", "failed", "cancelled", "terminated", ...also].includes(String(status)),
    60_000
  )

describe.skipIf(server.address === undefined)(`gateway, worker and Temporal ${server.skipped}`, () => {
  let database: OpenDatabase
  let gateway: Gateway
  let stub: StubUpstream
  const running: Array<PipelineWorkerProcess> = []
  /** The worker that is at work, handed on from test to test: each takes seconds to start. */
  let worker: PipelineWorkerProcess
  const temporal = { TEMPORAL_ADDRESS: server.address ?? "", TEMPORAL_TASK_QUEUE: "acceptance" }

  const startWorker = async () => {
    worker = await startPipelineWorker({
      ...temporal,
      DATABASE_URL: database.url,
      GATEWAY_DATA_DIR: gateway.dataDir,
      GATEWAY_MASTER_KEY: masterKey
    })
    running.push(worker)
  }

  const askedOf = (name: string) => stub.requests.filter(({ model }) => model.startsWith(`${name}?`)).length

  const completed = async (id: string) =>
    (
      await database.query<{ readonly n: number }>(
        "SELECT count(*)::int AS n FROM pipeline_run_events WHERE run_id = $1 AND event LIKE '%step_completed%'",
        [id]
      )
    )[0]!.n

  beforeAll(async () => {
    stub = await StubUpstream.start()
    database = await openDatabase()
    gateway = await startGateway({ databaseUrl: database.url, env: temporal })
    await registerModel(gateway, "slow", stub.url, {}, { model: "openai/slow?header_delay=100" })
    await registerModel(gateway, "slower", stub.url, {}, { model: "openai/slower?header_delay=2500" })
  }, 60_000)

  afterAll(async () => {
    for (const worker of running) await worker.kill()
    await gateway.stop()
    await database.close()
    await stub.stop()
  })

  it("a run waits for a worker, asks a model, waits for a human, and is recorded like any other", async () => {
    const id = await start(
      gateway,
      `name: asked
steps:
- {id: write, operator: chat, with: {model: sandbox/chat, prompt: "Hello \${inputs.who}"}}
- {id: check, operator: human_review, needs: write, with: {title: "\${steps.write.output.text}"}}
outputs: {text: "\${steps.write.output.text}", by: "\${steps.check.output.reviewer}"}`,
      { who: "Ada" }
    )
    assert.strictEqual(((await gateway.admin("GET", `${root}/runs/${id}`)).json as Body)["status"], "accepted")
    await startWorker()
    assert.strictEqual((await over(gateway, id, "awaiting_review"))["status"], "awaiting_review")
    const { data } = (await gateway.admin("GET", `${root}/hitl/pending`)).json as { readonly data: ReadonlyArray<Body> }
    const pending = data.find((row) => row["run_id"] === id)?.["pending_reviews"] as ReadonlyArray<Body>
    assert.deepInclude(pending[0], { step_id: "check", title: "The sandbox heard: Hello Ada" })
    const stream = await fetch(`${gateway.url}${root}/runs/${id}/stream`, {
      headers: { authorization: `Bearer ${masterKey}` }
    })
    const reply = await gateway.admin("POST", `${root}/runs/${id}/signal`, {
      signal_name: "human_review_decision",
      payload: { approved: true }
    })
    assert.strictEqual(reply.status, 200, reply.text)
    const ended = await over(gateway, id)
    assert.deepInclude(ended, {
      status: "completed",
      engine_namespace: "default",
      engine_workflow_id: `pipeline-run-${id}`,
      outputs: { text: "The sandbox heard: Hello Ada", by: "master_key" }
    })
    assert.include(await stream.text(), "event: terminal")
    const calls = () =>
      database.query<{ readonly n: number }>("SELECT 1 AS n FROM spend_logs WHERE request_id = $1", [`${id}.write.1`])
    assert.lengthOf(await until(calls, ({ length }) => length > 0), 1)
  }, 90_000)

  it("a worker that is killed in the middle of a map: another goes on where it was, each finished item once", async () => {
    const id = await start(
      gateway,
      `name: killed\nsteps:\n- id: each\n  operator: map\n  with:\n    items: "\${[1..40]}"\n    concurrency: 4\n` +
        `    step: {operator: chat, with: {model: slow, prompt: "\${item}"}}\noutputs: {n: "\${$count(steps.each.output)}"}`
    )
    await until(
      () => completed(id),
      (n) => n >= 8
    )
    await worker.kill()
    assert.isBelow(await completed(id), 41)
    await startWorker()
    const ended = await over(gateway, id)
    assert.deepStrictEqual([ended["status"], ended["outputs"]], ["completed", { n: 40 }], JSON.stringify(ended))
    assert.strictEqual(await completed(id), 41)
    // Only what was under way when it was killed was asked twice.
    const asked = askedOf("slow")
    assert.isAtLeast(asked, 40)
    assert.isAtMost(asked, 44)
  }, 90_000)

  it("a worker that is told to stop lets a step come to its end, and exits 0", async () => {
    const id = await start(
      gateway,
      "name: drained\nsteps:\n- {id: a, operator: chat, with: {model: slower, prompt: x}}"
    )
    await stub.until(() => askedOf("slower") > 0, 10_000)
    assert.strictEqual(await worker.stop(), 0, worker.output())
    assert.strictEqual(await completed(id), 1)
    await startWorker()
    assert.strictEqual((await over(gateway, id))["status"], "completed")
    assert.strictEqual(askedOf("slower"), 1)
  }, 90_000)
})

describe("without a Temporal server", () => {
  const away = { TEMPORAL_ADDRESS: "127.0.0.1:1" }

  it("creation is 503 workflow_engine_unavailable, leaves nothing, and the rest goes on", async () => {
    const database = await openDatabase()
    const gateway = await startGateway({ databaseUrl: database.url, env: away })
    try {
      const source = "name: p\nsteps: [{id: a, operator: transform, with: 1}]"
      const { asset_id: definition } = (await gateway.admin("POST", `${root}/definitions`, { dsl_source: source }))
        .json as Body
      const began = performance.now()
      const reply = await gateway.admin("POST", `${root}/runs`, { definition_id: definition })
      assert.isBelow(performance.now() - began, 5000)
      assert.strictEqual(reply.status, 503)
      assert.deepInclude((reply.json as { readonly error: Body }).error, {
        type: "service_unavailable",
        code: "workflow_engine_unavailable"
      })
      assert.deepStrictEqual((await gateway.admin("GET", `${root}/runs`)).json, { data: [] })
      assert.isEmpty(await database.query("SELECT 1 FROM provenance_entries WHERE action = 'pipeline.run.start'"))
    } finally {
      await gateway.stop()
      await database.close()
    }
  }, 60_000)

  it("a worker says in one line what it lacks", async () => {
    const directory = mkdtempSync(join(tmpdir(), "sluice-worker-"))
    const key = { GATEWAY_ENCRYPTION_KEY: Buffer.alloc(32, 1).toString("base64") }
    const lacking: ReadonlyArray<readonly [Record<string, string>, RegExp]> = [
      [{}, /^sluice: TEMPORAL_ADDRESS: must be set: .+\n$/],
      [away, /^sluice: GATEWAY_ENCRYPTION_KEY: must be that of the gateways: .+\n$/],
      [{ ...away, ...key }, /^sluice: DATABASE_URL: must be set, .+\n$/],
      [
        { ...away, ...key, TEMPORAL_TLS_SERVER_CA_CERT_PATH: "/none.pem" },
        /^sluice: TEMPORAL_TLS_SERVER_CA_CERT_PATH: cannot read \/none.pem: ENOENT\n$/
      ]
    ]
    try {
      for (const [env, line] of lacking) {
        const { code, err } = await sluice(["worker"], { GATEWAY_DATA_DIR: directory, ...env })
        assert.match(err, line)
        assert.strictEqual(code, 1)
      }
    } finally {
      rmSync(directory, { recursive: true, force: true })
    }
  }, 60_000)

  it("a worker that cannot reach Temporal says so and ends", async () => {
    const database = await openDatabase()
    const directory = mkdtempSync(join(tmpdir(), "sluice-worker-"))
    try {
      const { code, err } = await sluice(["worker"], {
        ...away,
        DATABASE_URL: database.url,
        GATEWAY_DATA_DIR: directory,
        GATEWAY_ENCRYPTION_KEY: Buffer.alloc(32, 1).toString("base64"),
        GATEWAY_LOG_LEVEL: "error"
      })
      assert.match(err, /sluice: TEMPORAL_ADDRESS: cannot reach Temporal at 127\.0\.0\.1:1: .+\n$/)
      assert.strictEqual(code, 1)
    } finally {
      await database.close()
      rmSync(directory, { recursive: true, force: true })
    }
  }, 60_000)
})
