/** Promise 10: SIGTERM drains. Streams finish, the journal is flushed, the exit code is 0. */
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { booksOf, chatBody, type OpenDatabase, openDatabase, registerModel, until } from "#test/support/acceptance.ts"
import { startGateway } from "#test/support/Gateway.ts"
import { StubUpstream } from "#test/support/StubUpstream.ts"

describe.each([
  ["one process", {}],
  ["two processes", { GATEWAY_PROCESSES: "2" }]
])("SIGTERM, %s", (_name, env) => {
  let stub: StubUpstream
  let database: OpenDatabase

  beforeAll(async () => {
    stub = await StubUpstream.start()
    database = await openDatabase()
  })

  afterAll(async () => {
    await database.close()
    await stub.stop()
  })

  it("lets a running stream finish, takes no new call, records and exits 0", async () => {
    const gateway = await startGateway({ databaseUrl: database.url, env })
    await registerModel(gateway, "slow", stub.url, { cost_per_request: 0.01 })
    await until(
      () => gateway.admin("GET", "/v1/models"),
      ({ text }) => text.includes('"slow"')
    )
    const { id, key } = await gateway.key()
    stub.script("slow", { chunks: 15, delay: 100 })
    const stream = gateway.request("POST", "/v1/chat/completions", {
      token: key,
      body: chatBody("slow", { stream: true })
    })
    await stub.until(() => stub.requests.some(({ events }) => events > 1), 5_000)
    const exit = gateway.stop()
    await until(
      () =>
        gateway.request("GET", "/v1/models", { token: key }).then(
          ({ status }) => status,
          () => "refused"
        ),
      (answer) => answer === "refused" || answer === 503
    )
    const readyz = await fetch(`${gateway.opsUrl}/readyz`)
    assert.deepStrictEqual(
      [readyz.status, await readyz.json()],
      [503, { status: "draining", dependencies: { listener: "draining" } }]
    )
    assert.strictEqual((await fetch(`${gateway.opsUrl}/livez`)).status, 200)
    assert.include(await (await fetch(`${gateway.opsUrl}/metrics`)).text(), "sluice_calls_in_flight 1")
    const reply = await stream
    assert.strictEqual(reply.status, 200)
    assert.isTrue(reply.text.endsWith("data: [DONE]\n\n"))
    assert.strictEqual(await exit, 0)
    const books = await booksOf(database, id)
    assert.deepStrictEqual([books.rows, books.keySpend], [1, "0.01"])
    const leases = await database.query<{ count: string }>("SELECT count(*)::text AS count FROM ledger_leases")
    assert.strictEqual(leases[0]?.count, "0", "shares were returned")
  })
})
