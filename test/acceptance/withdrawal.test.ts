/** Promise 5: a blocked, deleted, expired or regenerated key is refused everywhere within a second. */
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { chatBody, type OpenDatabase, openDatabase, until } from "#test/support/acceptance.ts"
import { type Gateway, startGateway } from "#test/support/Gateway.ts"

describe("withdrawn keys", () => {
  let database: OpenDatabase
  let one: Gateway
  let other: Gateway

  beforeAll(async () => {
    database = await openDatabase()
    one = await startGateway({ databaseUrl: database.url })
    other = await startGateway({ databaseUrl: database.url })
  })

  afterAll(async () => {
    await Promise.all([one.stop(), other.stop()])
    await database.close()
  })

  const call = (gateway: Gateway, key: string) =>
    gateway.request("POST", "/v1/chat/completions", { token: key, body: chatBody("sandbox/chat") })

  /** Makes both gateways know the key, withdraws it in one, and times the refusal in the other. */
  const refusedWithin = async (withdraw: (key: string, id: string) => Promise<unknown>) => {
    const { id, key } = await one.key()
    for (const gateway of [one, other]) assert.strictEqual((await call(gateway, key)).status, 200)
    await withdraw(key, id)
    const withdrawn = performance.now()
    assert.strictEqual((await call(one, key)).status, 401, "at once where it was withdrawn")
    await until(
      () => call(other, key),
      ({ status }) => status === 401,
      1_000
    )
    return performance.now() - withdrawn
  }

  it("blocked", async () =>
    assert.isBelow(await refusedWithin((_, id) => one.admin("POST", "/key/block", { key_id: id })), 1_000))
  it("deleted", async () =>
    assert.isBelow(await refusedWithin((key) => one.admin("POST", "/key/delete", { key })), 1_000))
  it("regenerated", async () =>
    assert.isBelow(await refusedWithin((key) => one.admin("POST", `/key/${key}/regenerate`)), 1_000))
  it("expired by an update", async () =>
    assert.isBelow(
      await refusedWithin((key) => one.admin("POST", "/key/update", { key, expires: "2020-01-01T00:00:00Z" })),
      1_000
    ))

  it("expires at its moment without anybody's doing", async () => {
    const expires = new Date(Date.now() + 1_500).toISOString()
    const { key } = await one.key({ expires })
    assert.strictEqual((await call(other, key)).status, 200)
    await until(
      () => call(other, key),
      ({ status }) => status === 401,
      2_500
    )
  })

  it("works again once it is unblocked", async () => {
    const { id, key } = await one.key()
    await one.admin("POST", "/key/block", { key_id: id })
    assert.strictEqual((await call(other, key)).status, 401)
    await one.admin("POST", "/key/unblock", { key_id: id })
    await until(
      () => call(other, key),
      ({ status }) => status === 200,
      1_500
    )
  })
})
