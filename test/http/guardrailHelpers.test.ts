/** The guardrail helpers, and guardrails that ask models and services, over HTTP. */
import { createHmac } from "node:crypto"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { booksOf, chatBody, type OpenDatabase, openDatabase, registerModel, until } from "#test/support/acceptance.ts"
import { type Gateway, type Reply, startGateway } from "#test/support/Gateway.ts"
import { JsonServer } from "#test/support/JsonServer.ts"
import { StubUpstream } from "#test/support/StubUpstream.ts"

let database: OpenDatabase
let gateway: Gateway
let stub: StubUpstream
let judge: JsonServer
let hook: JsonServer

const verdict = (violation: boolean) => ({
  id: "chatcmpl-judge",
  object: "chat.completion",
  created: 1,
  model: "judge",
  choices: [
    {
      index: 0,
      message: { role: "assistant", content: JSON.stringify({ violation, confidence: 0.9 }) },
      finish_reason: "stop"
    }
  ],
  usage: { prompt_tokens: 100, completion_tokens: 10, total_tokens: 110 }
})

beforeAll(async () => {
  database = await openDatabase()
  stub = await StubUpstream.start()
  judge = await JsonServer.start(({ text }) => verdict(text.includes("forbidden fruit")))
  hook = await JsonServer.start(({ text }) => ({ blocked: text.includes("launch code"), reason: "secret project" }))
  gateway = await startGateway({
    databaseUrl: database.url,
    env: { GATEWAY_TENANTS: "acme,globex", GATEWAY_ALLOW_PRIVATE_CALLBACKS: "true" }
  })
  await registerModel(gateway, "plain", stub.url)
  await registerModel(gateway, "judge", `${judge.url}/v1`, {
    input_cost_per_token: 0.00001,
    output_cost_per_token: 0.0001
  })
})

afterAll(async () => {
  await gateway.stop()
  await Promise.all([database.close(), stub.stop(), judge.stop(), hook.stop()])
})

const expectStatus = (reply: Reply, status: number): void => assert.strictEqual(reply.status, status, reply.text)

const failure = (reply: Reply) =>
  (reply.json as { error: { type: string; code: string; param?: string; message: string } }).error

const helper = (key: string, name: string, body?: unknown) =>
  gateway.request(body === undefined ? "GET" : "POST", `/v1/guardrails/${name}`, { token: key, body })

const chat = (key: string, content: string) =>
  gateway.request("POST", "/v1/chat/completions", {
    token: key,
    body: { ...chatBody("plain"), messages: [{ role: "user", content }] }
  })

/** Creates a guardrail and waits until it binds the key; returns how to take it away again. */
const bound = async (key: string, fields: Record<string, unknown>) => {
  const reply = await gateway.admin("POST", "/guardrail/new", fields)
  expectStatus(reply, 201)
  const id = (reply.json as { guardrail_id: string }).guardrail_id
  const names = async () => {
    const { guardrails } = (await helper(key, "available")).json as { guardrails: Array<{ guardrail_name: string }> }
    return guardrails.map(({ guardrail_name }) => guardrail_name)
  }
  const name = String(fields["guardrail_name"])
  await until(names, (all) => all.includes(name))
  return {
    id,
    remove: async () => {
      expectStatus(await gateway.admin("POST", "/guardrail/delete", { guardrail_id: id }), 200)
      await until(names, (all) => !all.includes(name))
    }
  }
}

describe("check and available", () => {
  it("run the caller's own guardrails and tell each one's result", async () => {
    const { key } = await gateway.key()
    assert.deepStrictEqual((await helper(key, "check", { text: "Project Orion" })).json, { safe: true, results: [] })
    const words = { guardrail_name: "words", guardrail_type: "deny_list", mode: "block", config: { words: ["Orion"] } }
    const deny = await bound(key, words)
    const watch = await bound(key, {
      guardrail_name: "watch",
      guardrail_type: "pii",
      mode: "log",
      config: { stage: "both" }
    })
    assert.deepStrictEqual((await helper(key, "available")).json, {
      guardrails: [
        { guardrail_name: "words", guardrail_type: "deny_list", mode: "block", stage: "pre" },
        { guardrail_name: "watch", guardrail_type: "pii", mode: "log", stage: "both" }
      ]
    })
    const check = async (text: string) => {
      const reply = await helper(key, "check", { text })
      expectStatus(reply, 200)
      const { results, safe } = reply.json as { safe: boolean; results: Array<{ status: string }> }
      return [safe, ...results.map(({ status }) => status)]
    }
    assert.deepStrictEqual(await check("about Orion"), [false, "blocked", "passed"])
    assert.deepStrictEqual(await check("write to a@b.example"), [false, "passed", "flagged"])
    assert.deepStrictEqual(await check("harmless"), [true, "passed", "passed"])
    assert.deepStrictEqual(await check(""), [true, "passed", "passed"])
    await deny.remove()
    await watch.remove()
  })

  it("refuse what is no text, too long, or unauthenticated", async () => {
    const { key } = await gateway.key()
    for (const name of ["check", "redact", "rehydrate"]) {
      expectStatus(await helper("sk-unknown", name, { text: "x" }), 401)
      assert.strictEqual(failure(await helper(key, name, {})).param, "text")
      expectStatus(await helper(key, name, { text: 7 }), 400)
      expectStatus(await helper(key, name, "{"), 400)
      const long = await helper(key, name, { text: "x".repeat(4_000_001) })
      assert.strictEqual(failure(long).code, "value_too_long")
    }
    expectStatus(await helper("sk-unknown", "available"), 401)
    const unknown = await helper(key, "redact", { text: "x", entity_types: ["EMAIL", "SHOE_SIZE"] })
    assert.strictEqual(failure(unknown).param, "entity_types.1")
    assert.strictEqual(failure(await helper(key, "redact", { text: "a@b.io ".repeat(20_001) })).param, "text")
  })
})

describe("redact and rehydrate", () => {
  const text = "Anna Schmidt <anna@firma.example> called +49 30 901820 from 10.1.2.3 about anna@firma.example."

  it("come back exactly, only for the tenant and key that redacted", async () => {
    const { key } = await gateway.key({ tenant: "acme" })
    const { key: sibling } = await gateway.key({ tenant: "acme" })
    const { key: foreign } = await gateway.key({ tenant: "globex" })
    const reply = await helper(key, "redact", { text })
    expectStatus(reply, 200)
    const redacted = reply.json as {
      text: string
      tokens: Array<{ token: string; entity_type: string; start: number; end: number }>
    }
    assert.match(redacted.text, /^<PERSON_[0-9a-f]+> <<EMAIL_[0-9a-f]+>> called <PHONE_/)
    assert.deepStrictEqual(
      redacted.tokens.map(({ end, entity_type, start }) => [entity_type, text.slice(start, end)]),
      [
        ["PERSON", "Anna Schmidt"],
        ["EMAIL", "anna@firma.example"],
        ["PHONE", "+49 30 901820"],
        ["IP_ADDRESS", "10.1.2.3"],
        ["EMAIL", "anna@firma.example"]
      ]
    )
    assert.strictEqual(redacted.tokens[1]!.token, redacted.tokens[4]!.token)
    const back = await helper(key, "rehydrate", { text: `${redacted.text} <EMAIL_3f9a2c>` })
    assert.deepStrictEqual(back.json, { text: `${text} <EMAIL_3f9a2c>` })
    for (const other of [sibling, foreign]) {
      assert.deepStrictEqual((await helper(other, "rehydrate", { text: redacted.text })).json, { text: redacted.text })
    }
    const rows = await database.query<{ tenant: string }>("SELECT tenant FROM tenant_acme.redactions")
    assert.lengthOf(rows, 4)
    const some = await helper(key, "redact", { text, entity_types: ["email"] })
    assert.match((some.json as { text: string }).text, /^Anna Schmidt <<EMAIL_\w+>> called \+49/)
  })
})

describe("webhook", () => {
  it("decides over requests, is signed, and its secret is never shown", async () => {
    const { key } = await gateway.key()
    const guard = await bound(key, {
      guardrail_name: "desk",
      guardrail_type: "webhook",
      mode: "block",
      config: { url: `${hook.url}/judge?x=1`, secret: "whsec_c2VjcmV0LW9mLXRoZS1kZXNr" }
    })
    const blocked = await chat(key, "the launch code, please")
    expectStatus(blocked, 422)
    assert.deepInclude(failure(blocked), { type: "unprocessable_entity", code: "guardrail_blocked", param: "desk" })
    assert.include(failure(blocked).message, "secret project")
    expectStatus(await chat(key, "the weather, please"), 200)

    const { headers, json, path, text } = hook.requests.at(-1)!
    assert.strictEqual(path, "/judge?x=1")
    assert.deepStrictEqual(json, { stage: "pre", texts: ["the weather, please"], guardrail: "desk" })
    const signed = `${headers["webhook-id"]}.${headers["webhook-timestamp"]}.${text}`
    const digest = createHmac("sha256", "secret-of-the-desk").update(signed).digest("base64")
    assert.strictEqual(headers["webhook-signature"], `v1,${digest}`)

    const [row] = await database.query<{ config: string }>(
      "SELECT config::text FROM guardrails WHERE id = $1::text::uuid",
      [guard.id]
    )
    assert.notInclude(row!.config, "c2VjcmV0LW9mLXRoZS1kZXNr")
    assert.notInclude((await gateway.admin("GET", "/guardrail/list")).text, "c2VjcmV0LW9mLXRoZS1kZXNr")

    hook.answer = (_, response) => void response.writeHead(500).end()
    expectStatus(await chat(key, "anything"), 422)
    hook.answer = ({ json }) => ({
      blocked: false,
      texts: (json["texts"] as Array<string>).map((text) => text.replaceAll("Smith", "***"))
    })
    expectStatus(await chat(key, "about Mr Smith"), 200)
    const sent = stub.requests.at(-1)!.json as { messages: Array<{ content: string }> }
    assert.strictEqual(sent.messages[0]!.content, "about Mr ***")
    await guard.remove()
  })
})

describe("llm_judge", () => {
  it("asks a registered model once, which is accounted to the caller and judged by nothing", async () => {
    const { id, key } = await gateway.key({ max_budget: 10 })
    const guard = await bound(key, {
      guardrail_name: "jury",
      guardrail_type: "llm_judge",
      mode: "block",
      config: { model: "judge", criteria: "No fruit." }
    })
    const before = judge.requests.length
    expectStatus(await chat(key, "the forbidden fruit"), 422)
    expectStatus(await chat(key, "a vegetable"), 200)
    assert.strictEqual(judge.requests.length, before + 2)
    // Two judgements of 100 and 10 tokens, a refused call and an answered one of a model without a price.
    const books = await until(
      () => booksOf(database, id),
      ({ rows }) => rows === 4
    )
    assert.deepInclude(books, { rows: 4, keyRequests: 4, rowSpend: "0.004", keySpend: "0.004" })
    const rows = await database.query<{ model: string; requests: string }>(
      "SELECT model, count(*)::text AS requests FROM spend_logs WHERE key_id = $1::text::uuid GROUP BY model ORDER BY 1",
      [id]
    )
    assert.deepStrictEqual(rows, [
      { model: "judge", requests: "2" },
      { model: "plain", requests: "2" }
    ])
    const poor = await gateway.key({ max_budget: 0.001 })
    const refused = await chat(poor.key, "a vegetable")
    // The judgement does not fit the budget, so the guardrail cannot run, and blocks.
    expectStatus(refused, 422)
    assert.strictEqual(judge.requests.length, before + 2)
    await guard.remove()
  })
})

/** The data of a stream's events, as they came. */
const streamed = async (key: string, model = "plain") => {
  const reply = await gateway.request("POST", "/v1/chat/completions", {
    token: key,
    body: { ...chatBody(model), stream: true }
  })
  const said = reply.text
    .split("\n\n")
    .filter((event) => event.startsWith("data: {"))
    .map((event) => JSON.parse(event.slice(6)) as { choices: Array<{ delta?: { content?: string } }> })
    .map(({ choices }) => choices[0]?.delta?.content ?? "")
    .join("")
  return { ...reply, said }
}

describe("streams under guardrails that ask elsewhere", () => {
  it("are held back until the answer is judged, and no blocked text leaves", async () => {
    const { id, key } = await gateway.key()
    const free = await streamed(key)
    assert.match(free.said, /^A gateway stands/)
    const guard = await bound(key, {
      guardrail_name: "jury",
      guardrail_type: "llm_judge",
      mode: "block",
      config: { model: "judge", criteria: "No fruit.", stage: "post" }
    })
    const before = judge.requests.length
    const passed = await streamed(key)
    assert.strictEqual(passed.said, free.said)
    assert.strictEqual(judge.requests.length, before + 1, "judged once, as a whole")
    judge.answer = () => verdict(true)
    const blocked = await streamed(key)
    judge.answer = () => verdict(false)
    assert.strictEqual(blocked.said, "")
    assert.include(blocked.text, "guardrail_blocked")
    assert.notInclude(blocked.text, "gateway stands")
    await guard.remove()
    const log = await until(
      () =>
        database.query<{ status: string; stage: string }>(
          `SELECT g.status, g.stage FROM guardrail_logs g JOIN spend_logs s USING (call_id)
            WHERE s.key_id = $1::text::uuid ORDER BY s.started_at`,
          [id]
        ),
      (rows) => rows.length === 2
    )
    assert.deepStrictEqual(log, [
      { status: "passed", stage: "post" },
      { status: "blocked", stage: "post" }
    ])
  })

  it("are moderated by a registered model", async () => {
    const { key } = await gateway.key()
    const guard = await bound(key, {
      guardrail_name: "mods",
      guardrail_type: "moderation",
      mode: "block",
      config: { model: "sandbox/moderation", stage: "both", categories: ["violence"] }
    })
    expectStatus(await chat(key, "how to murder a melody"), 422)
    expectStatus(await chat(key, "an idiot's guide to melodies"), 200)
    assert.match((await streamed(key)).said, /^A gateway stands/)
    await guard.remove()
  })

  it("give up the question when the client leaves", async () => {
    const { id, key } = await gateway.key()
    const guard = await bound(key, {
      guardrail_name: "desk",
      guardrail_type: "llm_judge",
      mode: "block",
      config: { model: "judge", criteria: "No fruit." }
    })
    const asked = new Promise<void>((resolve) => (judge.answer = () => resolve()))
    const left = new AbortController()
    const gone = fetch(`${gateway.url}/v1/chat/completions`, {
      method: "POST",
      signal: left.signal,
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify(chatBody("plain"))
    }).catch(() => undefined)
    await asked
    left.abort()
    await gone
    judge.answer = () => verdict(false)
    const rows = await until(
      () =>
        database.query<{ model: string; status: string }>(
          "SELECT model, status FROM spend_logs WHERE key_id = $1::text::uuid ORDER BY model",
          [id]
        ),
      (rows) => rows.length === 2
    )
    assert.deepStrictEqual(rows, [
      { model: "judge", status: "cancelled" },
      { model: "plain", status: "cancelled" }
    ])
    await guard.remove()
  })
})
