/** Promise 8: whatever a client sends gets its documented answer, nothing makes a 500, and the process lives. */
import { connect } from "node:net"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { chatBody, type OpenDatabase, openDatabase } from "#test/support/acceptance.ts"
import { type Gateway, startGateway } from "#test/support/Gateway.ts"

describe("hostile input", () => {
  let database: OpenDatabase
  let gateway: Gateway
  let key: string

  beforeAll(async () => {
    database = await openDatabase()
    gateway = await startGateway({ databaseUrl: database.url })
    key = (await gateway.key()).key
  })

  afterAll(async () => {
    assert.strictEqual((await gateway.request("GET", "/v1/models", { token: key })).status, 200, "the gateway lives")
    assert.strictEqual(await gateway.stop(), 0)
    await database.close()
  })

  const paths = [
    "/v1/chat/completions",
    "/engines/sandbox%2Fchat/chat/completions",
    "/v1/completions",
    "/v1/embeddings"
  ]

  const bodies: ReadonlyArray<readonly [name: string, body: string | Buffer, code: string]> = [
    ["nothing", "", "malformed_json"],
    ["malformed JSON", '{"model":', "malformed_json"],
    ["a bare word", "hello", "malformed_json"],
    ["no object", "[1,2]", "invalid_value"],
    ["null", "null", "invalid_value"],
    ["missing fields", '{"model":"sandbox/chat"}', "missing_field"],
    ["invalid UTF-8", Buffer.from([0x7b, 0x22, 0xff, 0xfe, 0x22, 0x3a, 0x31, 0x7d]), "malformed_json"],
    [
      "deep nesting",
      `{"model":"sandbox/chat","messages":${"[".repeat(100_000)}${"]".repeat(100_000)}}`,
      "malformed_json"
    ],
    [
      "a long model name",
      JSON.stringify({ ...chatBody("m".repeat(10_000)), prompt: "x", input: "x" }),
      "value_too_long"
    ]
  ]

  for (const path of paths) {
    for (const [name, body, code] of bodies) {
      if (name === "a long model name" && path.startsWith("/engines")) continue
      it(`${path}: ${name}`, async () => {
        const response = await fetch(gateway.url + path, {
          method: "POST",
          headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
          body: typeof body === "string" ? body : new Uint8Array(body)
        })
        const reply = (await response.json()) as { error: { type: string; code: string } }
        assert.deepStrictEqual([response.status, reply.error.code], [400, code])
        assert.isNotEmpty(response.headers.get("x-request-id"))
        assert.strictEqual(response.headers.get("x-gateway-ratelimit-limit"), "unlimited")
      })
    }
  }

  it("names the field of a wrong type, on both ways in", async () => {
    for (const path of ["/v1/chat/completions", "/openai/deployments/sandbox%2Fchat/chat/completions"]) {
      const reply = await gateway.request("POST", path, {
        token: key,
        body: { model: "sandbox/chat", messages: [{ role: "user", content: { a: 1 } }] }
      })
      assert.strictEqual(reply.status, 400)
      assert.strictEqual((reply.json as { error: { param: string } }).error.param, "messages.0.content")
    }
  })

  it("refuses 33 MiB with a 400 that the sender gets to see", async () => {
    for (const path of ["/v1/chat/completions", "/key/generate"]) {
      const reply = await gateway.request("POST", path, {
        token: path.startsWith("/v1") ? key : "mk-test-000000000000000000000000",
        body: `{"model":"${"x".repeat(33 * 1024 * 1024)}"}`
      })
      assert.strictEqual(reply.status, 400, path)
      assert.strictEqual((reply.json as { error: { code: string } }).error.code, "value_too_long", path)
    }
  })

  const raw = (text: string, end: boolean, waitMs = 20_000) =>
    new Promise<string>((resolve, reject) => {
      const url = new URL(gateway.url)
      const socket = connect({ host: url.hostname, port: Number(url.port), allowHalfOpen: true })
      let answer = ""
      const timer = setTimeout(() => {
        socket.destroy()
        reject(new Error(`no answer within ${waitMs} ms; got: ${answer}`))
      }, waitMs)
      socket.on("data", (chunk: Buffer) => {
        answer += chunk.toString()
        if (answer.includes("}}")) {
          clearTimeout(timer)
          socket.destroy()
          resolve(answer)
        }
      })
      socket.on("error", reject)
      socket.write(text)
      if (end) socket.end()
    })

  const head = `POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer `

  it("answers a body whose sender stops halfway", async () => {
    const answer = await raw(`${head}${key}\r\nContent-Length: 100\r\n\r\n{"model":"sandbox/chat",`, true)
    assert.match(answer, /^HTTP\/1\.1 400 /)
    assert.include(answer, "malformed_json")
  })

  it("answers what is no HTTP", async () => {
    const answer = await raw("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", true)
    assert.match(answer, /^HTTP\/1\.1 400 /)
  })

  it("answers a header that does not come", async () => {
    const answer = await raw("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Slow: ", false, 25_000)
    assert.match(answer, /^HTTP\/1\.1 400 /)
  }, 30_000)

  it("answers unknown paths and wrong methods alike", async () => {
    for (const [method, path] of [
      ["GET", "/"],
      ["GET", "/livez"],
      ["GET", "/metrics"],
      ["GET", "/v1/chat/completions"],
      ["PUT", "/key/generate"],
      ["GET", "/V1/Models"],
      ["GET", `/v1/models/${"x".repeat(5_000)}`],
      ["POST", "/v1/%ff%fe"]
    ] as const) {
      const reply = await gateway.request(method, path, { token: key })
      assert.strictEqual(reply.status, 404, path)
      assert.strictEqual((reply.json as { error: { type: string } }).error.type, "not_found_error", path)
    }
  })

  it("answers every authentication failure with the same bytes", async () => {
    const blocked = await gateway.key()
    await gateway.admin("POST", "/key/block", { key_id: blocked.id })
    const expired = await gateway.key({ expires: "2020-01-01T00:00:00Z" })
    const tokens = [undefined, "sk-unknown", "nonsense", "a.b.c", blocked.key, expired.key]
    for (const path of ["/v1/models", "/v1/chat/completions"]) {
      const answers = await Promise.all(
        tokens.map((token) =>
          gateway.request(path === "/v1/models" ? "GET" : "POST", path, {
            ...(token === undefined ? {} : { token }),
            ...(path === "/v1/models" ? {} : { body: chatBody("sandbox/chat") }),
            headers: { "x-request-id": "request-0001" }
          })
        )
      )
      const seen = answers.map(({ headers, status, text }) => {
        const named = Object.fromEntries([...headers].filter(([name]) => name !== "date"))
        return JSON.stringify({ status, text, named })
      })
      assert.strictEqual(new Set(seen).size, 1, seen.join("\n"))
      assert.strictEqual(answers[0]?.status, 401)
    }
  })

  it("keeps a well-formed request id and replaces another", async () => {
    const kept = await gateway.request("GET", "/v1/models", {
      token: key,
      headers: { "x-request-id": "trace-12345678" }
    })
    assert.strictEqual(kept.headers.get("x-request-id"), "trace-12345678")
    const replaced = await gateway.request("GET", "/v1/models", { token: key, headers: { "x-request-id": "<script>" } })
    assert.match(replaced.headers.get("x-request-id") ?? "", /^[0-9a-f-]{36}$/)
  })
})
