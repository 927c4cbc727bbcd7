/** Spans through the whole call, as a collector receives them, and W3C Trace Context on both sides of the gateway. */
import { request as httpRequest } from "node:http"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { chatBody, type OpenDatabase, openDatabase, registerModel, until } from "#test/support/acceptance.ts"
import { Collector, type ReceivedSpan } from "#test/support/Collector.ts"
import { type Gateway, startGateway } from "#test/support/Gateway.ts"
import { chatAnswer, stubUsage } from "#test/support/openai-answers.ts"
import { type Behaviour, StubUpstream } from "#test/support/StubUpstream.ts"

const price = { input_cost_per_token: 0.000001, output_cost_per_token: 0.000002 }
const down: Behaviour = { status: 503 }
const secret = "abracadabra"

const hex = (digits: number) =>
  Array.from({ length: digits }, () => Math.floor(1 + Math.random() * 15).toString(16)).join("")

let stub: StubUpstream
let database: OpenDatabase
let collector: Collector

beforeAll(async () => {
  stub = await StubUpstream.start()
  database = await openDatabase()
  collector = await Collector.start()
})

afterAll(async () => {
  collector.stop()
  await stub.stop()
  await database.close()
})

const start = async (env: Readonly<Record<string, string>>): Promise<Gateway> => {
  const gateway = await startGateway({
    databaseUrl: database.url,
    env: { OTEL_EXPORTER_OTLP_PROTOCOL: "http/json", OTEL_METRICS_EXPORTER: "none", ...env }
  })
  const { text } = await gateway.admin("GET", "/v1/models")
  for (const name of ["first", "slow", "spare"]) {
    if (!text.includes(`"${name}"`)) {
      await registerModel(gateway, name, stub.url, price, {
        max_retries: name === "first" ? 1 : 0,
        ...(name === "first" ? { fallbacks: ["spare"] } : {})
      })
    }
  }
  await until(
    () => gateway.admin("GET", "/v1/models"),
    (reply) => reply.text.includes('"spare"')
  )
  return gateway
}

/** One chat call of a key, within a trace of ours; the headers that upstreams were sent. */
const call = async (
  gateway: Gateway,
  model: string,
  headers: Readonly<Record<string, string>>,
  more: Readonly<Record<string, unknown>> = {}
) => {
  const { id, key } = await gateway.key({ max_budget: 5 })
  const before = stub.requests.length
  const reply = await gateway.request("POST", "/v1/chat/completions", {
    token: key,
    headers,
    body: chatBody(model, { messages: [{ role: "user", content: `The word is ${secret}` }], ...more })
  })
  return { reply, keyId: id, key, upstream: stub.requests.slice(before).map((one) => one.headers) }
}

/** A parent of our own, and the trace once all of its spans are there. */
const parent = (flags = "01") => {
  const traceId = hex(32)
  const spanId = hex(16)
  const trace = async (
    complete = (spans: ReadonlyArray<ReceivedSpan>) => spans.some(({ kind }) => kind === "server")
  ) => {
    const spans = await until(() => Promise.resolve(collector.spans(traceId)), complete)
    const one = (name: string): ReceivedSpan => {
      const found = spans.filter((span) => span.name === name)
      assert.lengthOf(found, 1, `${name} in ${spans.map((span) => span.name).join(", ")}`)
      return found[0]!
    }
    const below = (above: ReceivedSpan) =>
      spans.filter(({ parentSpanId }) => parentSpanId === above.spanId).toSorted((a, b) => a.start - b.start)
    return { spans, one, below }
  }
  return { traceId, spanId, headers: { traceparent: `00-${traceId}-${spanId}-${flags}`, tracestate: "a=1" }, trace }
}

const route = "POST /v1/chat/completions"

describe("a traced gateway", () => {
  let gateway: Gateway

  beforeAll(async () => {
    gateway = await start({ OTEL_EXPORTER_OTLP_ENDPOINT: collector.url })
  })

  afterAll(async () => {
    await gateway.stop()
    const everything = collector.received.map(({ text }) => text).join("\n")
    for (const word of [secret, "sk-"]) assert.notInclude(everything, word)
  })

  it("shows a retry and a fallback as tries with their outcomes under one call", async () => {
    stub.script("first", down)
    const { headers, spanId, trace, traceId } = parent()
    const { keyId, reply, upstream } = await call(gateway, "first", headers)
    assert.strictEqual(reply.status, 200, reply.text)
    const { below, one, spans } = await trace()

    const server = one(route)
    assert.include(server, { kind: "server", parentSpanId: spanId, traceState: "a=1", failed: false })
    assert.include(server.attributes, {
      "http.request.method": "POST",
      "http.route": "/v1/chat/completions",
      "http.response.status_code": 200,
      "url.path": "/v1/chat/completions",
      "url.scheme": "http",
      "server.address": "127.0.0.1",
      "server.port": Number(new URL(gateway.url).port)
    })

    const [chat, ...others] = below(server)
    assert.deepStrictEqual(others, [])
    assert.include(chat, { name: "chat first", kind: "client", failed: false })
    assert.include(chat!.attributes, {
      "gen_ai.operation.name": "chat",
      "gen_ai.request.model": "first",
      "gen_ai.response.model": "spare",
      "gen_ai.provider.name": "openai",
      "gen_ai.usage.input_tokens": stubUsage.prompt_tokens,
      "gen_ai.usage.output_tokens": stubUsage.completion_tokens,
      "sluice.key_id": keyId,
      "sluice.status": "success",
      "sluice.cost_usd": Number((stubUsage.prompt_tokens * 1e-6 + stubUsage.completion_tokens * 2e-6).toFixed(9))
    })

    const parts = below(chat!)
    assert.deepStrictEqual(
      parts.map(({ name }) => name),
      ["reserve", "attempt first", "attempt first", "attempt spare", "settle"]
    )
    const tries = parts.slice(1, 4)
    const told = (name: string) => tries.map(({ attributes }) => attributes[name])
    assert.deepStrictEqual(told("http.response.status_code"), [503, 503, 200])
    assert.deepStrictEqual(told("error.type"), ["upstream_error", "upstream_error", undefined])
    assert.deepStrictEqual(told("http.request.resend_count"), [undefined, 1, undefined])
    assert.deepStrictEqual(told("sluice.attempt"), [1, 2, 3])
    assert.deepStrictEqual(told("gen_ai.request.model"), ["first", "first", "spare"])
    assert.deepStrictEqual(told("server.address"), ["127.0.0.1", "127.0.0.1", "127.0.0.1"])
    assert.deepStrictEqual(told("server.port"), [stub.port, stub.port, stub.port])
    assert.deepStrictEqual(
      tries.map(({ failed, kind }) => [kind, failed]),
      [
        ["client", true],
        ["client", true],
        ["client", false]
      ]
    )
    assert.notStrictEqual(told("sluice.deployment_id")[0], told("sluice.deployment_id")[2])
    // Usage is the call's alone: whoever adds it up over spans counts it once.
    assert.lengthOf(
      spans.filter(({ attributes }) => "gen_ai.usage.input_tokens" in attributes),
      1
    )

    assert.deepStrictEqual(
      upstream.map((sent) => sent["traceparent"]),
      tries.map((one) => `00-${traceId}-${one.spanId}-01`)
    )
    assert.deepStrictEqual(
      upstream.map((sent) => sent["tracestate"]),
      ["a=1", "a=1", "a=1"]
    )
    for (const span of spans) {
      assert.isAtLeast(span.end, span.start)
      assert.isAtLeast(span.start, server.start)
    }
  })

  it("begins a trace of its own where no parent is named, or one that nobody understands", async () => {
    const other = hex(32)
    for (const traceparent of [undefined, `00-${other}-${hex(16)}`, `00-${"0".repeat(32)}-${hex(16)}-01`, "01"]) {
      const { upstream } = await call(gateway, "spare", {
        ...(traceparent === undefined ? {} : { traceparent }),
        tracestate: "a=1"
      })
      const [, traceId, spanId, flags] = upstream[0]!["traceparent"]!.toString().split("-")
      assert.isUndefined(upstream[0]!["tracestate"])
      assert.notInclude([other, "0".repeat(32)], traceId)
      assert.strictEqual(flags, "01")
      const spans = await until(
        () => Promise.resolve(collector.spans(traceId)),
        (found) => found.some(({ kind }) => kind === "server")
      )
      assert.isUndefined(spans.find(({ name }) => name === route)?.parentSpanId)
      assert.strictEqual(spans.find(({ name }) => name === "attempt spare")?.spanId, spanId)
    }
  })

  it("follows a parent that is not sampled: nothing is sent, and upstreams hear so", async () => {
    const { headers, traceId } = parent("00")
    const { reply, upstream } = await call(gateway, "spare", headers)
    assert.strictEqual(reply.status, 200)
    assert.match(upstream[0]!["traceparent"]!.toString(), new RegExp(`^00-${traceId}-[0-9a-f]{16}-00$`))
    assert.strictEqual(upstream[0]!["tracestate"], "a=1")
    const later = parent()
    await call(gateway, "spare", later.headers)
    await later.trace()
    assert.deepStrictEqual(collector.spans(traceId), [])
  })

  it("names what a refused call was refused for", async () => {
    for (const [more, code, status] of [
      [{ model: "no-such-model" }, "model_not_found", 404],
      [{ messages: 7 }, "invalid_value", 400]
    ] as const) {
      const { headers, trace } = parent()
      const { reply } = await call(gateway, "spare", headers, more)
      assert.strictEqual(reply.status, status, reply.text)
      const { one, spans } = await trace()
      const server = one(route)
      assert.include(server, { failed: false })
      assert.include(server.attributes, { "error.type": code, "http.response.status_code": status })
      const chat = spans.find(({ name }) => name.startsWith("chat "))
      assert.strictEqual(chat?.attributes["error.type"], code === "model_not_found" ? code : undefined)
    }
    const { headers, trace } = parent()
    const broke = await gateway.key({ max_budget: 0.00000001 })
    const body = chatBody("spare", { max_tokens: 10 })
    const reply = await gateway.request("POST", "/v1/chat/completions", { token: broke.key, headers, body })
    assert.strictEqual(reply.status, 429, reply.text)
    const { one } = await trace()
    assert.include(one("reserve").attributes, { "error.type": "budget_exceeded" })
    assert.include(one("chat spare").attributes, { "error.type": "budget_exceeded", "sluice.status": "refused" })
  })

  it("names what a call failed of", async () => {
    stub.script("slow", { fault: "reset" })
    const { headers, trace } = parent()
    const { reply } = await call(gateway, "slow", headers)
    stub.script("slow")
    assert.strictEqual(reply.status, 502, reply.text)
    const { one } = await trace()
    for (const name of [route, "chat slow", "attempt slow"]) {
      assert.isTrue(one(name).failed, name)
      assert.strictEqual(one(name).attributes["error.type"], "upstream_error")
    }
    assert.isUndefined(one("attempt slow").attributes["http.response.status_code"])
  })

  it("tells when a stream began", async () => {
    stub.script("spare", { headerDelay: 60, chunks: 3, delay: 20 })
    const { headers, trace } = parent()
    const { reply } = await call(gateway, "spare", headers, { stream: true })
    stub.script("spare")
    assert.strictEqual(reply.status, 200)
    const { one } = await trace()
    const chat = one("chat spare")
    assert.strictEqual(chat.attributes["gen_ai.request.stream"], true)
    for (const span of [chat, one("attempt spare")]) {
      const first = span.attributes["gen_ai.response.time_to_first_chunk"] as number
      assert.isAtLeast(first, 0.05, span.name)
      assert.isBelow(first * 1000, span.end - span.start + 1)
    }
    assert.deepStrictEqual(
      one("attempt spare").events.map(({ name }) => name),
      ["sluice.first_chunk"]
    )
  })

  it("tells of a stream that its client cut", async () => {
    stub.script("slow", { chunks: 500, delay: 20 })
    const { headers, trace } = parent()
    const { key } = await gateway.key()
    await new Promise<void>((resolve, reject) => {
      const request = httpRequest(
        `${gateway.url}/v1/chat/completions`,
        { method: "POST", headers: { ...headers, authorization: `Bearer ${key}`, "content-type": "application/json" } },
        (response) => {
          response.on("error", () => undefined)
          response.once("data", () => {
            request.destroy()
            resolve()
          })
        }
      )
      request.on("error", reject)
      request.end(JSON.stringify(chatBody("slow", { stream: true })))
    })
    const { one } = await trace((spans) => spans.some(({ name }) => name === "chat slow") && spans.length >= 5)
    stub.script("slow")
    assert.include(one(route).attributes, { "http.response.status_code": 200, "sluice.connection_cut": true })
    assert.include(one("chat slow").attributes, { "sluice.status": "cancelled", "http.response.status_code": 499 })
    assert.include(one("attempt slow").attributes, { "sluice.status": "cancelled", "http.response.status_code": 200 })
    assert.isFalse(one("attempt slow").failed)
  })

  it("tells of a stream that broke after its beginning", async () => {
    stub.script("slow", { chunks: 20, fault: "reset-body" })
    const { headers, trace } = parent()
    const { reply } = await call(gateway, "slow", headers, { stream: true })
    stub.script("slow")
    assert.include(reply.text, "event: error")
    const { one } = await trace()
    for (const name of [route, "chat slow", "attempt slow"]) {
      assert.isTrue(one(name).failed, name)
      assert.strictEqual(one(name).attributes["error.type"], "upstream_error", name)
    }
  })

  it("shows guardrails on both sides, and the models that they ask", async () => {
    const { json } = await gateway.admin("POST", "/organization/new", { organization_alias: "guarded" })
    const { organization_id: organization } = json as { readonly organization_id?: string }
    assert.isString(organization, JSON.stringify(json))
    await registerModel(gateway, "judge", stub.url, price, { max_retries: 0 })
    const judgement = JSON.parse(chatAnswer("judge")) as { choices: [{ message: { content: string } }] }
    judgement.choices[0].message.content = '{"violation": false, "confidence": 1}'
    stub.script("judge", { body: JSON.stringify(judgement) })
    for (const [name, type, config] of [
      ["words", "deny_list", { stage: "post", words: ["lorem"] }],
      ["taste", "llm_judge", { stage: "pre", model: "judge", criteria: "No fruit." }]
    ] as const) {
      const made = await gateway.admin("POST", "/guardrail/new", {
        guardrail_name: name,
        guardrail_type: type,
        mode: "log",
        config,
        organization_id: organization
      })
      assert.strictEqual(made.status, 201, made.text)
    }
    const { key } = await gateway.key({ organization_id: organization })
    for (const stream of [false, true]) {
      const { below, one, spans } = await until(
        async () => {
          const { headers, trace } = parent()
          const body = chatBody("spare", { stream })
          const reply = await gateway.request("POST", "/v1/chat/completions", { token: key, headers, body })
          assert.strictEqual(reply.status, 200, reply.text)
          return await trace()
        },
        // The guardrails reach this process a moment after they were made.
        (found) =>
          found.spans.some(({ name }) => name === "guardrails post") &&
          found.spans.some(({ name }) => name === "chat judge")
      )
      assert.deepStrictEqual(
        below(one("chat spare")).map(({ name }) => name),
        ["reserve", "guardrails pre", "attempt spare", "guardrails post", "settle"]
      )
      const pre = one("guardrails pre")
      assert.deepStrictEqual(
        below(pre).map(({ name }) => name),
        ["chat judge"]
      )
      assert.deepStrictEqual(
        below(one("chat judge")).map(({ name }) => name),
        ["attempt judge"]
      )
      assert.deepInclude(pre.events[0]?.attributes, {
        "sluice.guardrail.name": "taste",
        "sluice.guardrail.stage": "pre",
        "sluice.guardrail.status": "passed"
      })
      assert.strictEqual(one("guardrails post").events[0]?.attributes["sluice.guardrail.name"], "words")
      assert.strictEqual(spans.filter(({ kind }) => kind === "server").length, 1)
    }
  })

  it("shows requests that call no model, without the keys that stand in their paths", async () => {
    const { key } = await gateway.key()
    const ask = async (method: string, path: string, token?: string) => {
      const { headers, trace } = parent()
      await gateway.request(method, path, { headers, ...(token === undefined ? {} : { token }) })
      return (await trace()).spans
    }
    const [regenerated] = await ask("POST", `/key/${key}/regenerate`)
    assert.include(regenerated, { name: "POST /key/:key/regenerate", failed: false })
    assert.include(regenerated!.attributes, { "url.path": "/key/[key]/regenerate", "error.type": "invalid_session" })
    const [unknown] = await ask("GET", `/v2/nothing?key=${key}`)
    assert.include(unknown, { name: "GET" })
    assert.include(unknown!.attributes, { "url.path": "/v2/nothing", "error.type": "route_not_found" })
    const [list] = await ask("GET", "/v1/models", key)
    assert.include(list!.attributes, { "http.route": "/v1/models", "http.response.status_code": 200 })
  })

  it("shows runs of pipelines, their steps, and the calls of those", async () => {
    stub.script("slow", down)
    const source =
      "name: two\nsteps:\n- {id: ask, operator: chat, with: {model: spare, prompt: hi}}\n" +
      "- {id: fail, operator: chat, needs: [ask], with: {model: slow, prompt: hi}}"
    const root = "/management/pipelines"
    const made = await gateway.admin("POST", `${root}/definitions`, { dsl_source: source })
    const { asset_id: definition } = made.json as { readonly asset_id?: string }
    assert.isString(definition, made.text)
    const started = await gateway.admin("POST", `${root}/runs`, { definition_id: definition, initial_inputs: {} })
    const { run_id: id } = started.json as { readonly run_id?: string }
    assert.isString(id, started.text)
    const found = await until(
      () => Promise.resolve(collector.spans().filter(({ attributes }) => attributes["sluice.run_id"] === id)),
      (spans) => spans.length > 0,
      20_000
    )
    stub.script("slow")
    const spans = collector.spans(found[0]!.traceId)
    const below = (above: ReceivedSpan) => spans.filter(({ parentSpanId }) => parentSpanId === above.spanId)
    const run = found.at(-1)!
    assert.include(run, { name: "pipeline.run", kind: "internal", failed: true })
    assert.isUndefined(run.parentSpanId)
    assert.include(run.attributes, { "sluice.status": "failed", "error.type": "upstream_error" })
    const steps = below(run)
    assert.isAtLeast(steps.length, 2)
    assert.deepStrictEqual([...new Set(steps.map(({ name }) => name))], ["pipeline.step chat"])
    assert.strictEqual(steps[0]!.attributes["sluice.request_id"], `${id}.ask.1`)
    assert.strictEqual(steps[1]!.attributes["error.type"], "upstream_error")
    assert.deepStrictEqual(
      steps.slice(0, 2).map((step) => below(step).map(({ name }) => name)),
      [["chat spare"], ["chat slow"]]
    )
    assert.include(
      below(below(steps[0]!)[0]!).map(({ name }) => name),
      "attempt spare"
    )
  })
})

describe("samplers and propagators", () => {
  it("always_off sends nothing and passes the trace on as not sampled", async () => {
    const before = collector.received.length
    const gateway = await start({ OTEL_EXPORTER_OTLP_ENDPOINT: collector.url, OTEL_TRACES_SAMPLER: "always_off" })
    const { headers, traceId } = parent()
    const { upstream } = await call(gateway, "spare", headers)
    await gateway.stop()
    assert.match(upstream[0]!["traceparent"]!.toString(), new RegExp(`^00-${traceId}-[0-9a-f]{16}-00$`))
    assert.lengthOf(collector.received, before)
  })

  it("a ratio takes its part, and propagators of none neither read nor write headers", async () => {
    const gateway = await start({
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OTEL_TRACES_SAMPLER: "traceidratio",
      OTEL_TRACES_SAMPLER_ARG: "0.5",
      OTEL_PROPAGATORS: "none"
    })
    const before = new Set(collector.spans().map(({ traceId }) => traceId))
    const { headers, traceId } = parent()
    const { upstream } = await call(gateway, "spare", headers)
    for (let asked = 0; asked < 200; asked++) await gateway.request("GET", "/v1/models")
    await gateway.stop()
    assert.isUndefined(upstream[0]!["traceparent"])
    assert.deepStrictEqual(collector.spans(traceId), [])
    const taken = new Set(
      collector
        .spans()
        .map((span) => span.traceId)
        .filter((one) => !before.has(one))
    )
    assert.isAbove(taken.size, 60)
    assert.isBelow(taken.size, 150)
  })

  it("that nobody knows end the start with a line that names them", async () => {
    for (const [name, value] of [
      ["OTEL_TRACES_SAMPLER", "sometimes"],
      ["OTEL_TRACES_SAMPLER_ARG", "2"]
    ] as const) {
      const failure = await start({ [name]: value }).then(
        () => "it started",
        (error: Error) => error.message
      )
      assert.include(failure, `${name}: must be`)
    }
  })
})

describe("a gateway that is not traced", () => {
  it("sends nothing, and no traceparent to upstreams, whatever its client says", async () => {
    const before = collector.received.length
    const gateway = await start({})
    const { headers } = parent()
    for (const stream of [false, true]) {
      const { reply, upstream } = await call(gateway, "spare", headers, { stream })
      assert.strictEqual(reply.status, 200)
      assert.isUndefined(upstream[0]!["traceparent"])
      assert.isUndefined(upstream[0]!["tracestate"])
    }
    await gateway.stop()
    assert.lengthOf(collector.received, before)
  })
})
