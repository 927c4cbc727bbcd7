/** OpenTelemetry over OTLP: what a collector is sent, and that nothing is sent unasked. */
import { createServer, type Server } from "node:http"
import type { AddressInfo } from "node:net"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { type OpenDatabase, openDatabase } from "#test/support/acceptance.ts"
import { masterKey, startGateway } from "#test/support/Gateway.ts"

interface Attribute {
  readonly key: string
  readonly value: { readonly stringValue?: string; readonly intValue?: unknown; readonly doubleValue?: number }
}

interface Received {
  readonly path: string
  readonly authorization: string | undefined
  readonly text: string
}

let database: OpenDatabase
let collector: Server
let received: Array<Received> = []

beforeAll(async () => {
  database = await openDatabase()
  collector = createServer((request, response) => {
    let text = ""
    request.on("data", (chunk: Buffer) => void (text += chunk.toString()))
    request.on("end", () => {
      received.push({ path: request.url ?? "", authorization: request.headers.authorization, text })
      response.writeHead(200, { "content-type": "application/json" }).end("{}")
    })
  })
  await new Promise<void>((resolve) => collector.listen(0, "127.0.0.1", resolve))
})

afterAll(async () => {
  collector.close()
  await database.close()
})

const address = () => `http://127.0.0.1:${(collector.address() as AddressInfo).port}`

/** One call, one refused call and one score, then the end of the process. */
const session = async (env: Readonly<Record<string, string>>) => {
  received = []
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

const named = (attributes: ReadonlyArray<Attribute>): Record<string, unknown> =>
  Object.fromEntries(
    attributes.map(({ key, value }) => [key, value.stringValue ?? value.doubleValue ?? Number(value.intValue)])
  )

const sent = <A>(path: string): ReadonlyArray<A> =>
  received.filter((one) => one.path === path).map(({ text }) => JSON.parse(text) as A)

describe("OpenTelemetry", () => {
  it("sends a span a model call and an event a score, and no prompt or credential", async () => {
    const { jobId, key } = await session({
      OTEL_EXPORTER_OTLP_ENDPOINT: address(),
      OTEL_EXPORTER_OTLP_PROTOCOL: "http/json",
      OTEL_EXPORTER_OTLP_HEADERS: "authorization=Bearer%20collector",
      OTEL_SERVICE_NAME: "gateway-under-test"
    })
    interface Traces {
      readonly resourceSpans: ReadonlyArray<{
        readonly resource: { readonly attributes: ReadonlyArray<Attribute> }
        readonly scopeSpans: ReadonlyArray<{
          readonly spans: ReadonlyArray<{ readonly name: string; readonly attributes: ReadonlyArray<Attribute> }>
        }>
      }>
    }
    const resources = sent<Traces>("/v1/traces").flatMap(({ resourceSpans }) => resourceSpans)
    assert.include(named(resources[0]!.resource.attributes), { "service.name": "gateway-under-test" })
    const spans = resources.flatMap(({ scopeSpans }) => scopeSpans.flatMap((scope) => scope.spans))
    assert.deepStrictEqual(
      spans.map(({ name }) => name),
      ["chat sandbox/chat"]
    )
    const span = named(spans[0]!.attributes)
    assert.include(span, {
      "gen_ai.operation.name": "chat",
      "gen_ai.request.model": "sandbox/chat",
      "gen_ai.provider.name": "sandbox",
      "http.response.status_code": 200,
      "sluice.status": "success"
    })
    assert.isAbove(span["gen_ai.usage.input_tokens"] as number, 0)
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
    const records = sent<Logs>("/v1/logs").flatMap(({ resourceLogs }) =>
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
      received.some(({ path, text }) => path === "/v1/metrics" && text.includes("sluice_model_calls_total"))
    )
    assert.isTrue(received.every(({ authorization }) => authorization === "Bearer collector"))
    const everything = received.map(({ text }) => text).join("\n")
    for (const secret of [key, masterKey, "abracadabra"]) assert.notInclude(everything, secret)
  })

  it("sends nothing where no address is set, or it is disabled", async () => {
    await session({})
    await session({ OTEL_EXPORTER_OTLP_ENDPOINT: address(), OTEL_SDK_DISABLED: "true" })
    assert.deepStrictEqual(received, [])
  })

  it("leaves out a signal whose exporter is none, and outlives a collector that is away", async () => {
    await session({
      OTEL_EXPORTER_OTLP_ENDPOINT: address(),
      OTEL_TRACES_EXPORTER: "none",
      OTEL_METRICS_EXPORTER: "none"
    })
    assert.deepStrictEqual([...new Set(received.map(({ path }) => path))], ["/v1/logs"])
    await session({ OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1:9" })
  })
})
