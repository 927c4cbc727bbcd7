/** With PostgreSQL away, known unlimited keys go on and lose nothing; unknown keys get 503, not 401 (decisions.md, 6.4). */
import { Effect, Exit, Redacted, Scope } from "effect"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { booksOf, chatBody, type OpenDatabase, openDatabase, until } from "#test/support/acceptance.ts"
import { type DatabaseGate, databaseGate } from "#test/support/DatabaseGate.ts"
import { type Gateway, startGateway } from "#test/support/Gateway.ts"

const outageMs = 20_000

describe("an outage of PostgreSQL", () => {
  const scope = Scope.makeUnsafe()
  let database: OpenDatabase
  let gate: DatabaseGate
  let gateway: Gateway

  beforeAll(async () => {
    database = await openDatabase()
    gate = await Effect.runPromise(Scope.provide(databaseGate(Redacted.make(database.url)), scope))
    gateway = await startGateway({ databaseUrl: Redacted.value(gate.url) })
  })

  afterAll(async () => {
    await gateway.stop()
    await Effect.runPromise(Scope.close(scope, Exit.void))
    await database.close()
  })

  const call = (key: string) =>
    gateway.request("POST", "/v1/chat/completions", { token: key, body: chatBody("sandbox/chat") })

  it("lasts 20 s and costs no call of a known unlimited key", async () => {
    const known = await gateway.key()
    const stranger = await gateway.key()
    assert.strictEqual((await call(known.key)).status, 200)
    let answered = 1

    gate.cut()
    const end = performance.now() + outageMs
    const load = async () => {
      while (performance.now() < end + 1_000) {
        const reply = await call(known.key)
        assert.strictEqual(reply.status, 200, reply.text)
        answered++
        await new Promise((resolve) => setTimeout(resolve, 20))
      }
    }
    const running = Promise.all([load(), load(), load(), load()])

    const refused = await call(stranger.key)
    assert.strictEqual(refused.status, 503)
    assert.strictEqual((refused.json as { error: { code: string } }).error.code, "database_unavailable")
    assert.strictEqual((await call("sk-nobody")).status, 401, "what has no key's form needs no database")
    assert.strictEqual((await fetch(`${gateway.opsUrl}/readyz`)).status, 503)
    assert.strictEqual((await fetch(`${gateway.opsUrl}/livez`)).status, 200)
    assert.strictEqual((await gateway.admin("POST", "/key/generate", {})).status, 503)

    await new Promise((resolve) => setTimeout(resolve, end - performance.now()))
    gate.restore()
    await running
    const books = await until(
      () => booksOf(database, known.id),
      ({ rows }) => rows >= answered,
      20_000
    )
    assert.deepStrictEqual([books.rows, books.dailyRequests, books.keyRequests], [answered, answered, answered])
    assert.strictEqual((await call(stranger.key)).status, 200)
    await gateway.ready()
  }, 60_000)
})
