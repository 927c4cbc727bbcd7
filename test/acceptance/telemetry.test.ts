/** OpenTelemetry over OTLP: what a collector is sent, and that nothing is sent unasked. */
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { type OpenDatabase, openDatabase } from "#test/support/acceptance.ts"
import { type Attribute, Collector, named } from "#test/support/Collector.ts"
import { masterKey, startGateway } from "#test/support/Gateway.ts"

let database: OpenDatabase
let collector: Collector

beforeAll(async () => {
  database = await openDatabase()
  collector = await Collector.start()
})

afterAll(async () => {
  collector.stop()
  await database.close()
})

/** One call, one refused call and one score, then the end of the process. */
const session = async (env: Readonly<Record<string, string>>) => {
  collector.received.length = 0
  const gateway = await startGateway({ databaseUrl: database.url, env })
  const { key } = await gateway.key()
  const chat = (model: string) =>
    gateway.request("POST", "/v1/chat/completions", {
      token: key,
      body: { model, messages: [{ role: "user", content: "The secret word is abracadabra" }] }
    })
  assert.strictEqual((await chat("sandbox/chat")).status, 200)
  assert.strictEqual((await chat("no-such-model")).status, 404)
  const suite = await gateway.admin("POST", "/management/eval_suite/new", {
    content: { name: `suite-${Math.random()}`, eval_type: "exact", test_cases: [{ id: "a" }] }
  })
  const { asset_id: suiteId } = suite.json as { readonly asset_id: string }
  const job = await gateway.admin("POST", "/management/eval_job/new", { eval_suite_id: suiteId })
  const { eval_job_id: jobId } = job.json as { readonly eval_job_id: string }
  const scored = await gateway.request("POST", "/v1/scores", {
    token: key,
    body: { eval_job_id: jobId, test_case_id: "a", score: 0.25, label: "poor", gen_ai_response_id: "chatcmpl-1" }
  })
  assert.strictEqual(scored.status, 200, scored.text)
  await gateway.stop()
  return { key, jobId }
}

describe("OpenTelemetry", () => {
  it("sends a span a model call, refused ones too, and an event a score, and no prompt or credential", async () => {
    const { jobId, key } = await session({
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OTEL_EXPORTER_OTLP_PROTOCOL: "http/json",
      OTEL_EXPORTER_OTLP_HEADERS: "authorization=Bearer%20collector",
      OTEL_SERVICE_NAME: "gateway-under-test"
    })
    assert.include(collector.resources()[0], { "service.name": "gateway-under-test" })
    const calls = collector.spans().filter(({ attributes }) => "gen_ai.operation.name" in attributes)
    assert.deepStrictEqual(
      calls.map(({ name }) => name),
      ["chat sandbox/chat", "chat no-such-model"]
    )
    const [span, refused] = calls
    assert.include(span!.attributes, {
      "gen_ai.operation.name": "chat",
      "gen_ai.request.model": "sandbox/chat",
      "gen_ai.provider.name": "sandbox",
      "http.response.status_code": 200,
      "sluice.status": "success"
    })
    assert.isAbove(span!.attributes["gen_ai.usage.input_tokens"] as number, 0)
    assert.include(refused!.attributes, { "error.type": "model_not_found", "sluice.status": "refused" })
    interface Logs {
      readonly resourceLogs: ReadonlyArray<{
        readonly scopeLogs: ReadonlyArray<{
          readonly logRecords: ReadonlyArray<{
            readonly eventName: string
            readonly attributes: ReadonlyArray<Attribute>
          }>
        }>
      }>
    }
    const records = collector
      .sent<Logs>("/v1/logs")
      .flatMap(({ resourceLogs }) =>
        resourceLogs.flatMap(({ scopeLogs }) => scopeLogs.flatMap(({ logRecords }) => logRecords))
      )
    assert.deepStrictEqual(
      records.map(({ eventName }) => eventName),
      ["gen_ai.evaluation.result"]
    )
    assert.include(named(records[0]!.attributes), {
      "gen_ai.evaluation.score.value": 0.25,
      "gen_ai.evaluation.score.label": "poor",
      "gen_ai.response.id": "chatcmpl-1",
      "sluice.eval_job_id": jobId
    })
    assert.isTrue(
      collector.received.some(({ path, text }) => path === "/v1/metrics" && text.includes("sluice_model_calls_total"))
    )
    assert.isTrue(collector.received.every(({ authorization }) => authorization === "Bearer collector"))
    const everything = collector.received.map(({ text }) => text).join("\n")
    for (const secret of [key, masterKey, "abracadabra"]) assert.notInclude(everything, secret)
  })

  it("sends nothing where no address is set, or it is disabled", async () => {
    await session({})
    await session({ OTEL_EXPORTER_OTLP_ENDPOINT: collector.url, OTEL_SDK_DISABLED: "true" })
    assert.deepStrictEqual(collector.received, [])
  })

  it("leaves out a signal whose exporter is none, and outlives a collector that is away", async () => {
    await session({
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OTEL_TRACES_EXPORTER: "none",
      OTEL_METRICS_EXPORTER: "none"
    })
    assert.deepStrictEqual([...new Set(collector.received.map(({ path }) => path))], ["/v1/logs"])
    await session({ OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1:9" })
  })
})
