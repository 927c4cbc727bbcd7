import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { sluice } from "#test/support/command.ts"
import { type Gateway, startGateway } from "#test/support/Gateway.ts"

describe("sessions on the command line, with the embedded database", () => {
  const dataDir = mkdtempSync(join(tmpdir(), "sluice-session-"))
  const run = (...parts: ReadonlyArray<string>) => sluice(["session", ...parts], { GATEWAY_DATA_DIR: dataDir })
  let gateway: Gateway

  beforeAll(async () => {
    gateway = await startGateway({ dataDir })
  })
  afterAll(async () => {
    await gateway.stop()
    rmSync(dataDir, { recursive: true, force: true })
  })

  it("beside a running gateway, and without one", async () => {
    const user = await gateway.admin("POST", "/user/new", { name: "Dev", user_role: "developer" })
    const { id } = user.json as { readonly id: string }
    const keys = (token: string) =>
      gateway.request("GET", "/developer/v1/keys", { headers: { cookie: `gateway_session=${token}` } })

    const [first, second] = [await run("create", "--user", id), await run("create", "--user", id, "--expires-in", "1h")]
    assert.match(first.out, /^gws_[A-Za-z0-9_-]{43}\n$/, first.err)
    assert.strictEqual((await keys(first.out.trim())).status, 200)
    assert.strictEqual((await run("revoke", "--token", first.out.trim())).out, "1 session revoked\n")
    assert.strictEqual((await keys(first.out.trim())).status, 401)
    assert.strictEqual((await keys(second.out.trim())).status, 200)

    assert.strictEqual(await gateway.stop(), 0)
    assert.strictEqual((await run("revoke", "--user", id)).out, "1 session revoked\n")
    assert.strictEqual((await run("revoke", "--user", id)).out, "0 sessions revoked\n")
    gateway = await startGateway({ dataDir })
    assert.strictEqual((await keys(second.out.trim())).status, 401)
  }, 120_000)

  it("says when the user is no developer", async () => {
    const user = await gateway.admin("POST", "/user/new", { name: "Clerk" })
    const made = await run("create", "--user", (user.json as { readonly id: string }).id)
    assert.strictEqual(made.code, 0)
    assert.include(made.err, "The user's role is 'user'")
  })
})
