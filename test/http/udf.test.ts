/** The batch UDF on the mutual-TLS listener, with real certificates. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Agent, request } from "node:https"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { type OpenDatabase, openDatabase, registerModel, until } from "#test/support/acceptance.ts"
import { certificateAuthority, type Issued } from "#test/support/Certificates.ts"
import { freePort, type Gateway, startGateway } from "#test/support/Gateway.ts"
import { StubUpstream } from "#test/support/StubUpstream.ts"

type Authority = Awaited<ReturnType<typeof certificateAuthority>>

interface Answer {
  readonly status: number
  readonly headers: Readonly<Record<string, unknown>>
  readonly json: { readonly items: ReadonlyArray<{ Output: string; Error: string }>; readonly error: { code: string } }
}

let directory: string
let ours: Authority
let second: Authority
let other: Authority
let port: number
let gateway: Gateway
let stub: StubUpstream
let database: OpenDatabase
let right: Issued
let keyId: string

const caFile = () => join(directory, "clients.pem")

const call = (
  path: string,
  options: {
    readonly client?: Issued | undefined
    readonly headers?: Record<string, string>
    readonly body?: unknown
    readonly agent?: Agent
  }
): Promise<Answer> =>
  new Promise((resolve, reject) => {
    const sent = request(
      {
        host: "127.0.0.1",
        port,
        path,
        method: "POST",
        ca: ours.cert,
        ...(options.client === undefined ? {} : { cert: options.client.cert, key: options.client.key }),
        agent: options.agent ?? false,
        headers: { "content-type": "application/json", ...options.headers }
      },
      (response) => {
        const parts: Array<Buffer> = []
        response.on("data", (part: Buffer) => parts.push(part))
        response.on("end", () =>
          resolve({
            status: response.statusCode ?? 0,
            headers: response.headers,
            json: JSON.parse(Buffer.concat(parts).toString() || "{}") as Answer["json"]
          })
        )
      }
    )
    sent.on("error", reject)
    sent.end(JSON.stringify(options.body ?? {}))
  })

const batch = (
  items: ReadonlyArray<unknown>,
  headers: Record<string, string> = {},
  client: Issued | undefined = right
) => call("/v1/batch/udf", { client, headers: { "X-Query-Engine-User": ":warehouse", ...headers }, body: { items } })

const item = (model: string, input = "Hello", more: Record<string, unknown> = {}) => ({
  function: "ai_complete",
  model,
  input,
  ...more
})

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), "sluice-udf-"))
  ;[ours, second, other] = await Promise.all([
    certificateAuthority("ours"),
    certificateAuthority("second"),
    certificateAuthority("other")
  ])
  const server = await ours.server()
  right = await ours.client({ name: "query-engine" })
  writeFileSync(join(directory, "server.pem"), server.cert)
  writeFileSync(join(directory, "server.key"), server.key, { mode: 0o600 })
  writeFileSync(caFile(), `${ours.cert}\n${second.cert}\n`)
  port = await freePort()
  stub = await StubUpstream.start()
  database = await openDatabase()
  gateway = await startGateway({
    databaseUrl: database.url,
    env: {
      GATEWAY_UDF_PORT: String(port),
      GATEWAY_UDF_TLS_CERT: join(directory, "server.pem"),
      GATEWAY_UDF_TLS_KEY: join(directory, "server.key"),
      GATEWAY_UDF_TLS_CLIENT_CA: caFile(),
      GATEWAY_TENANTS: "acme"
    }
  })
  await registerModel(gateway, "up", stub.url, { cost_per_request: 0.01 })
  await registerModel(gateway, "slow", stub.url, { cost_per_request: 0.01 })
  stub.script("slow", { headerDelay: 100 })
  keyId = (await gateway.key({ key_alias: "warehouse", user_id: "owner-1" })).id
}, 90_000)

afterAll(async () => {
  await gateway.stop()
  await database.close()
  await stub.stop()
  rmSync(directory, { recursive: true, force: true })
})

describe("certificates", () => {
  it("admits one of the client CA", async () => {
    const reply = await batch([item("sandbox/chat")])
    assert.strictEqual(reply.status, 200)
    assert.deepStrictEqual(reply.json.items, [{ Output: "The sandbox heard: Hello", Error: "" }])
    assert.strictEqual(reply.headers["x-gateway-ratelimit-limit"], "unlimited")
  })

  it.each([
    ["none", () => Promise.resolve(undefined)],
    ["an expired one", () => ours.client({ name: "old", from: -172_800_000, until: -86_400_000 })],
    ["one that is not valid yet", () => ours.client({ name: "new", from: 80_000_000, until: 86_400_000 })],
    ["another CA's", () => other.client({ name: "query-engine" })],
    ["a server's", () => ours.server()]
  ])("refuses %s with 401 on every path", async (_name, make) => {
    const client = await make()
    for (const path of ["/v1/batch/udf", "/v1/chat/completions"]) {
      const reply = await call(path, { client, headers: { "X-Query-Engine-User": ":warehouse" } })
      assert.strictEqual(reply.status, 401)
      assert.strictEqual(reply.json.error.code, "invalid_session")
      assert.isString(reply.headers["x-request-id"])
    }
  })

  it("refuses those of a CA that was taken out of the file, on open connections too", async () => {
    const client = await second.client({ name: "soon-gone" })
    const agent = new Agent({ keepAlive: true, ca: ours.cert, cert: client.cert, key: client.key })
    const asked = { headers: { "X-Query-Engine-User": ":warehouse" }, body: { items: [] } }
    assert.strictEqual((await call("/v1/batch/udf", { ...asked, client, agent })).status, 200)
    writeFileSync(caFile(), `${ours.cert}\n`)
    // One that is just being made when the file is read again is cut too.
    await until(
      () =>
        call("/v1/batch/udf", { ...asked, client }).then(
          ({ status }) => status,
          () => undefined
        ),
      (status) => status === 401
    )
    // The kept connection has been cut: the agent opens another one, which is refused.
    const kept = await call("/v1/batch/udf", { ...asked, client, agent }).catch(() =>
      call("/v1/batch/udf", { ...asked, client, agent })
    )
    assert.strictEqual(kept.status, 401)
    assert.strictEqual((await batch([])).status, 200)
    agent.destroy()
  })

  it("answers 401 on the plain listener", async () => {
    const reply = await gateway.request("POST", "/v1/batch/udf", {
      body: { items: [] },
      headers: { "X-Query-Engine-User": ":warehouse" }
    })
    assert.strictEqual(reply.status, 401)
  })

  it("serves the same API behind the certificate", async () => {
    const { key } = await gateway.key({})
    const reply = await call("/v1/chat/completions", {
      client: right,
      headers: { authorization: `Bearer ${key}` },
      body: { model: "sandbox/chat", messages: [{ role: "user", content: "Hi" }] }
    })
    assert.strictEqual(reply.status, 200)
  })
})

describe("the principal", () => {
  it("is named by row id, alias or owner", async () => {
    for (const principal of [keyId, "warehouse", "owner-1"]) {
      const reply = await batch([], { "X-Query-Engine-User": `:${principal}` })
      assert.strictEqual(reply.status, 200, principal)
    }
  })

  it("is 400 when missing or malformed, 401 when nobody", async () => {
    assert.strictEqual((await call("/v1/batch/udf", { client: right, body: { items: [] } })).status, 400)
    assert.strictEqual((await batch([], { "X-Query-Engine-User": "warehouse" })).status, 400)
    assert.strictEqual((await batch([], { "X-Query-Engine-User": ":nobody" })).status, 401)
  })

  it("is 403 tenant_mismatch when its key belongs to another tenant", async () => {
    const reply = await batch([], { "X-Query-Engine-User": "acme:warehouse" })
    assert.strictEqual(reply.status, 403)
    assert.strictEqual(reply.json.error.code, "tenant_mismatch")
  })

  it("is refused once its key is blocked", async () => {
    const { id } = await gateway.key({ key_alias: "blocked-soon" })
    assert.strictEqual((await batch([], { "X-Query-Engine-User": ":blocked-soon" })).status, 200)
    await gateway.admin("POST", "/key/block", { key_id: id })
    assert.strictEqual((await batch([], { "X-Query-Engine-User": ":blocked-soon" })).status, 401)
  })
})

describe("the batch", () => {
  it("takes 64 items of an upstream that takes 100 ms in about 200 ms, in their order", async () => {
    await batch(Array.from({ length: 64 }, () => item("slow")))
    const inputs = Array.from({ length: 64 }, (_, at) => `item ${at}`)
    const before = stub.received
    const start = performance.now()
    const reply = await batch(inputs.map((input) => item("slow", input)))
    const took = performance.now() - start
    assert.strictEqual(reply.status, 200)
    assert.strictEqual(reply.json.items.filter(({ Error }) => Error === "").length, 64)
    assert.strictEqual(stub.received - before, 64)
    assert.isAtLeast(took, 195)
    assert.isBelow(took, 600)
    console.log(`64 items: ${took.toFixed(0)} ms`)
    const echoed = await batch(inputs.map((input) => item("sandbox/chat", input)))
    assert.deepStrictEqual(
      echoed.json.items.map(({ Output }) => Output),
      inputs.map((input) => `The sandbox heard: ${input}`)
    )
  })

  it("fails no other item for a bad one", async () => {
    const reply = await batch([
      item("sandbox/chat"),
      item("no-such-model"),
      { function: "ai_complete", input: "no model" },
      { function: "ai_translate", model: "sandbox/chat", input: "Hallo" },
      { function: "ai_embed", model: "sandbox/embed", input: "Hello", args: { dimensions: 8 } },
      { function: "ai_sentiment", model: "sandbox/chat", input: "a positive surprise" },
      { function: "ai_redact", model: "sandbox/chat", input: "Write to ada@example.org" }
    ])
    assert.strictEqual(reply.status, 200)
    const { items } = reply.json
    assert.deepStrictEqual(
      items.map(({ Error }) => Error.split(":")[0]),
      ["", "model_not_found", "invalid_value", "invalid_value", "", "", ""]
    )
    assert.strictEqual((JSON.parse(items[4]!.Output) as Array<number>).length, 8)
    assert.strictEqual(items[5]!.Output, "positive")
    assert.strictEqual(items[6]!.Output, "The sandbox heard: Write to [EMAIL]")
  })

  it("is 400 for 65 items, for an unknown function and for no JSON", async () => {
    assert.strictEqual((await batch(Array.from({ length: 65 }, () => item("sandbox/chat")))).status, 400)
    assert.strictEqual((await batch([item("sandbox/chat", "x", { function: "ai_dance" })])).status, 400)
    assert.strictEqual((await batch("nothing" as never)).status, 400)
  })

  it("reserves, records and audits every item by itself", async () => {
    const { id } = await gateway.key({ key_alias: "thrifty", max_budget: 0.035 })
    const reply = await batch(
      Array.from({ length: 10 }, () => item("up")),
      { "X-Query-Engine-User": ":thrifty", "X-Query-Engine-Query-Id": "20261121_104855_00007_xyzab" }
    )
    const spent = reply.json.items.filter(({ Error }) => Error === "").length
    assert.isAtLeast(spent, 1)
    assert.isAtMost(spent, 3)
    assert.strictEqual(reply.json.items.filter(({ Error }) => Error.startsWith("budget_exceeded")).length, 10 - spent)
    const rows = await until(
      () =>
        database.query<{ action: string; request_id: string }>(
          "SELECT action, request_id FROM provenance_entries WHERE actor = $1 AND action LIKE 'udf.%'",
          [`key:${id}`]
        ),
      (found) => found.length === spent
    )
    assert.deepStrictEqual(
      [...new Set(rows.map((row) => `${row.action} ${row.request_id}`))],
      ["udf.ai_complete 20261121_104855_00007_xyzab"]
    )
  })
})
