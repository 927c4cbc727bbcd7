/** `sluice provenance verify` as an operator runs it. */
import { spawn } from "node:child_process"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { type OpenDatabase, openDatabase } from "#test/support/acceptance.ts"
import { administratorToken } from "#test/support/administrators.ts"
import { sluice as runSluice } from "#test/support/command.ts"
import { startGateway } from "#test/support/Gateway.ts"

const main = fileURLToPath(new URL("../../src/main.ts", import.meta.url))

let database: OpenDatabase

const sluice = (...args: ReadonlyArray<string>) =>
  new Promise<{ readonly code: number | null; readonly out: string; readonly err: string }>((resolve) => {
    const child = spawn(process.execPath, [main, ...args], {
      env: {
        PATH: process.env["PATH"],
        DATABASE_URL: database.url,
        GATEWAY_TENANTS: "acme,globex",
        GATEWAY_DATA_DIR: join(tmpdir(), "sluice-no-data-dir")
      }
    })
    let [out, err] = ["", ""]
    child.stdout.on("data", (chunk: Buffer) => void (out += chunk.toString()))
    child.stderr.on("data", (chunk: Buffer) => void (err += chunk.toString()))
    child.once("close", (code) => resolve({ code, out, err }))
  })

beforeAll(async () => {
  database = await openDatabase()
  const gateway = await startGateway({ databaseUrl: database.url, env: { GATEWAY_TENANTS: "acme,globex" } })
  const token = await administratorToken({ tenant: "acme" })
  for (const name of ["one", "two", "three"]) {
    await gateway.request("POST", "/management/v1/groups/", { token, body: { name } })
  }
  await gateway.stop()
})

afterAll(() => database.close())

describe("sluice provenance verify", () => {
  it("walks every tenant's chain, and exits with 0 when all are intact", async () => {
    const { code, err, out } = await sluice("provenance", "verify")
    assert.strictEqual(code, 0, err)
    assert.deepStrictEqual(out.trim().split("\n").slice(1), ["acme: 3 entries, intact", "globex: 0 entries, intact"])
    assert.match(out, /^\(public\): \d+ entries, intact$/m)
  })

  it("names the first entry that was changed, and exits with 1", async () => {
    await database.query(
      `UPDATE tenant_acme.provenance_entries SET payload = payload || '{"name": "forged"}' WHERE sequence_number = 2`
    )
    const { code, err, out } = await sluice("provenance", "verify", "--tenant", "acme")
    assert.strictEqual(code, 1)
    assert.strictEqual(out.trim(), "acme: entry 2 is changed; the 1 entries before it are intact")
    assert.include(err, "sluice: The provenance chain is broken: acme")
    assert.strictEqual((await sluice("provenance", "verify", "--tenant", "globex")).code, 0)
  })

  it("refuses a tenant that there is not", async () => {
    const { code, err } = await sluice("provenance", "verify", "--tenant", "nobody")
    assert.strictEqual(code, 1)
    assert.include(err, "'nobody' is not one of GATEWAY_TENANTS")
  })
})

describe("beside a gateway with the embedded database", () => {
  it("migrates, verifies, and leaves the gateway its database", async () => {
    const gateway = await startGateway()
    try {
      await gateway.key({ key_alias: "audited" })
      const env = { GATEWAY_DATA_DIR: gateway.dataDir }
      const verified = await runSluice(["provenance", "verify"], env)
      assert.match(verified.out, /^\(public\): [1-9]\d* entries, intact$/m, verified.err)
      assert.strictEqual(verified.code, 0)
      const migrated = await runSluice(["migrate"], env)
      assert.strictEqual(migrated.out, "The database is up to date.\n", migrated.err)
      assert.strictEqual((await gateway.admin("GET", "/key/list")).status, 200)
    } finally {
      await gateway.stop()
    }
  }, 120_000)
})
