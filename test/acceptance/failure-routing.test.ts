/** Failing deployments among others: retries, fallbacks, health; and clients that leave at every stage of a call. */
import { request as httpRequest } from "node:http"
import { countTokens } from "gpt-tokenizer/encoding/o200k_base"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { chatBody, openDatabase, registerModel, until } from "#test/support/acceptance.ts"
import { chat } from "#test/support/drill-shapes.ts"
import { heldBy, prices, type Stage } from "#test/support/drills.ts"
import { half, streamed } from "#test/support/drills-streams.ts"
import { answer, throttled, unavailable } from "#test/support/drills-whole.ts"
import { freePort, startGateway } from "#test/support/Gateway.ts"
import { RawUpstream, type Script, whole as rawWhole } from "#test/support/RawUpstream.ts"

const good: Script = [answer(chat)]
const goodStream = streamed(chat, chat.events)
const whole = answer(chat)
const promptTokens = countTokens("Hello") + 4 + 3
/** What the stub's usage costs at `prices`. */
const reported = chat.usage.input * 1003 + chat.usage.output * 2007

/** Upstreams by name; each model is one or several deployments of them. */
const upstreams: Readonly<Record<string, ReadonlyArray<Script>>> = {
  "down-1": [[unavailable]],
  "down-2": [["reset"]],
  "down-3": [[throttled("30")]],
  "down-4": [[unavailable]],
  "broken-stream": [[...half(chat), "reset"]],
  "mute-stream": [[streamed(chat, [])[0]!, "hang"]],
  spare: [good],
  "spare-stream": [goodStream],
  "never-1": [["hang"]],
  "never-2": [[whole.subarray(0, -30), "hang"]],
  "never-3": [[...half(chat), "hang"]],
  "never-4": [[unavailable]],
  "never-5": [[whole]],
  judge: [[rawWhole('{"blocked":false}')], ["hang"]]
}

describe("failing deployments and leaving clients", () => {
  let stage: Stage
  const keyIds: Array<string> = []

  const deployment = (model: string, upstream: string, params: Readonly<Record<string, unknown>> = {}) =>
    registerModel(stage.gateway, model, `${stage.upstream.baseOf(upstream)}/v1`, prices, { max_retries: 0, ...params })

  beforeAll(async () => {
    const upstream = new RawUpstream()
    const database = await openDatabase()
    const gateway = await startGateway({
      databaseUrl: database.url,
      env: { GATEWAY_ALLOW_PRIVATE_CALLBACKS: "true" }
    })
    stage = { gateway, database, upstream }
    for (const [name, answers] of Object.entries(upstreams)) await upstream.script(name, answers)
    await deployment("spare", "spare")
    await deployment("spare-stream", "spare-stream")
    await deployment("group", "down-1", { priority: 1 })
    await deployment("group", "spare", { priority: 2 })
    await deployment("falling", "down-2", { fallbacks: ["limited"] })
    await deployment("limited", "down-3", { fallbacks: ["spare"] })
    await deployment("streaming", "mute-stream", { fallbacks: ["spare-stream"], stream_timeout: 0.4 })
    await deployment("begun", "broken-stream", { fallbacks: ["spare-stream"] })
    await deployment("lost", "down-2", { fallbacks: ["lost-too"] })
    await registerModel(gateway, "lost-too", `http://127.0.0.1:${await freePort()}/v1`, prices, { max_retries: 0 })
    await deployment("sick", "down-4")
    for (const index of [1, 2, 3, 5]) await deployment(`never-${index}`, `never-${index}`)
    await deployment("never-4", "never-4", { max_retries: 10 })
    await until(
      () => gateway.admin("GET", "/v1/models"),
      ({ text }) => text.includes('"never-4"')
    )
  })

  afterAll(async () => {
    await stage.gateway.stop()
    await stage.database.close()
    stage.upstream.stop()
  })

  const newKey = async () => {
    const created = await stage.gateway.key({ max_budget: 1 })
    keyIds.push(created.id)
    return created
  }

  const call = async (model: string, more: Readonly<Record<string, unknown>> = {}) => {
    const { id, key } = await newKey()
    const body = chatBody(model, { max_tokens: 100, ...more })
    return { id, reply: await stage.gateway.request("POST", "/v1/chat/completions", { token: key, body }) }
  }

  const rowOf = async (keyId: string) => {
    const rows = await until(
      () =>
        stage.database.query<{ status: string; estimated: boolean; error: string | null; nanos: number }>(
          `SELECT status, estimated, error_code AS error, trunc(spend * 1000000000)::int AS nanos
            FROM spend_logs WHERE key_id = $1::text::uuid`,
          [keyId]
        ),
      (rows) => rows.length > 0
    )
    assert.strictEqual(rows.length, 1, "one row a call, however many deployments were asked")
    return { ...rows[0]! }
  }
  const charged = { status: "success", estimated: false, error: null, nanos: reported }

  const tries = (name: string) => stage.upstream.of(name).length

  it("goes on to the next deployment of the group", async () => {
    const { id, reply } = await call("group")
    assert.strictEqual(reply.status, 200, reply.text)
    assert.deepStrictEqual([tries("down-1"), tries("spare")], [1, 1])
    assert.deepStrictEqual(await rowOf(id), charged)
  })

  it("goes on to a fallback, and from there to its fallback", async () => {
    const { id, reply } = await call("falling")
    assert.strictEqual(reply.status, 200, reply.text)
    assert.deepStrictEqual([tries("down-2"), tries("down-3")], [1, 1])
    assert.deepStrictEqual(await rowOf(id), charged)
  })

  it("goes on while a stream has not begun", async () => {
    const { id, reply } = await call("streaming", { stream: true })
    assert.isTrue(reply.text.endsWith("data: [DONE]\n\n"), reply.text)
    assert.deepStrictEqual(await rowOf(id), charged)
  })

  it("does not go on once it has: no text comes twice", async () => {
    const before = tries("spare-stream")
    const { id, reply } = await call("begun", { stream: true })
    assert.strictEqual(reply.status, 200)
    assert.include(reply.text.trimEnd().split("\n").at(-1), '"code":"upstream_error"')
    assert.strictEqual(tries("spare-stream"), before)
    const nanos = promptTokens * 1003 + countTokens(chat.halfText) * 2007
    assert.deepStrictEqual(await rowOf(id), { status: "error", estimated: true, error: "upstream_error", nanos })
  })

  it("answers 502 when all are down, and charges nothing", async () => {
    for (const stream of [false, true]) {
      const { id, reply } = await call("lost", { stream })
      assert.strictEqual(reply.status, 502, reply.text)
      assert.notInclude(reply.text, "127.0.0.1")
      assert.deepStrictEqual(await rowOf(id), { status: "error", estimated: false, error: "upstream_error", nanos: 0 })
    }
  })

  it("leaves a deployment that keeps failing alone, and says when to come again", async () => {
    for (let index = 0; index < 5; index += 1) assert.strictEqual((await call("sick")).reply.status, 502)
    const { id, reply } = await call("sick")
    assert.strictEqual(reply.status, 503, reply.text)
    assert.include(reply.text, '"overloaded"')
    assert.isAtLeast(Number(reply.headers.get("retry-after")), 1)
    assert.strictEqual(tries("down-4"), 5)
    assert.deepStrictEqual(await rowOf(id), { status: "error", estimated: false, error: "overloaded", nanos: 0 })
  })

  /** Sends a call and destroys its socket when told. */
  const leave = async (model: string, stream: boolean, when: () => Promise<unknown>, afterByte = false) => {
    const { id, key } = await newKey()
    const closed = Promise.withResolvers<void>()
    const request = httpRequest(`${stage.gateway.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}` }
    })
    const firstByte = Promise.withResolvers<void>()
    request.on("response", (response) => {
      response.on("data", () => firstByte.resolve())
      response.on("error", () => undefined)
    })
    request.on("error", () => undefined)
    request.on("close", () => closed.resolve())
    request.end(JSON.stringify(chatBody(model, { stream, max_tokens: 100 })))
    await when()
    if (afterByte) await firstByte.promise
    request.destroy()
    await closed.promise
    return id
  }

  const arrived = (name: string) => () =>
    until(
      () => Promise.resolve(tries(name)),
      (count) => count > 0
    )

  const answered = (name: string) => () =>
    until(
      () => Promise.resolve(stage.upstream.of(name).at(-1)?.outcome),
      (outcome) => outcome === "answered"
    )

  const stages = [
    { name: "before the headers", model: "never-1", stream: false, output: 0 },
    { name: "within the body", model: "never-2", stream: false, output: 0 },
    { name: "within the stream", model: "never-3", stream: true, output: countTokens(chat.halfText) }
  ]
  it.for(stages)("cancels the upstream when its client leaves $name", async ({ model, output, stream }) => {
    const id = await leave(model, stream, arrived(model), stream)
    await until(
      () => Promise.resolve(stage.upstream.of(model).map(({ outcome }) => outcome)),
      ([outcome]) => outcome === "left",
      2_000
    )
    const nanos = promptTokens * 1003 + output * 2007
    assert.deepStrictEqual(await rowOf(id), { status: "cancelled", estimated: true, error: null, nanos })
  })

  it("tries no more once its client has left", async () => {
    // The try has failed and the next one waits.
    const id = await leave("never-4", false, answered("never-4"))
    assert.deepStrictEqual(await rowOf(id), { status: "cancelled", estimated: false, error: null, nanos: 0 })
    const seen = tries("never-4")
    await new Promise((resolve) => setTimeout(resolve, 600))
    assert.strictEqual(tries("never-4"), seen)
  })

  it("charges an answer whose client leaves while a guardrail looks at it", async () => {
    const made = await stage.gateway.admin("POST", "/guardrail/new", {
      guardrail_name: "judge",
      guardrail_type: "webhook",
      mode: "block",
      config: { stage: "post", url: stage.upstream.baseOf("judge"), timeout_ms: 5_000 }
    })
    assert.include([200, 201], made.status, made.text)
    await until(
      () => call("spare"),
      () => tries("judge") > 0
    )
    const before = tries("judge")
    const asked = () =>
      until(
        () => Promise.resolve(tries("judge")),
        (count) => count > before
      )
    const id = await leave("never-5", false, asked)
    assert.deepStrictEqual(await rowOf(id), { ...charged, status: "cancelled" })
    await until(
      () => Promise.resolve(stage.upstream.of("judge").at(-1)?.outcome),
      (outcome) => outcome === "left",
      2_000
    )
  })

  it("leaves no reservation", async () => {
    const { logged, spent } = await until(
      () => heldBy(stage, keyIds),
      ({ leased }) => leased === "0",
      8_000
    )
    assert.strictEqual(spent, logged)
  })
})
