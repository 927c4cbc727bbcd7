/** A new encryption key, from the first start with it until the old one is gone from the settings. */
import { spawn } from "node:child_process"
import { once } from "node:events"
import { randomBytes } from "node:crypto"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { chatBody, type OpenDatabase, openDatabase, registerModel, until } from "#test/support/acceptance.ts"
import { sluice } from "#test/support/command.ts"
import { type Gateway, masterKey, startGateway } from "#test/support/Gateway.ts"
import { StubUpstream } from "#test/support/StubUpstream.ts"

const main = fileURLToPath(new URL("../../src/main.ts", import.meta.url))
const newKey = () => randomBytes(32).toString("base64")
const [first, second] = [newKey(), newKey()]
const tables = ["credentials", "models", "callbacks", "developer_idempotency", "redactions"]
const redactionsPerCall = 500

describe("sluice reseal", () => {
  const dataDir = mkdtempSync(join(tmpdir(), "sluice-reseal-"))
  let database: OpenDatabase
  let gateway: Gateway
  let stub: StubUpstream

  const envOf = (key: string, previous = "") => ({
    GATEWAY_ENCRYPTION_KEY: key,
    ...(previous === "" ? {} : { GATEWAY_PREVIOUS_ENCRYPTION_KEYS: previous })
  })
  const commandEnv = (key: string, previous = "") => ({
    GATEWAY_DATA_DIR: dataDir,
    DATABASE_URL: database.url,
    GATEWAY_MASTER_KEY: masterKey,
    ...envOf(key, previous)
  })
  const restart = async (key: string, previous = "") => {
    await gateway.stop()
    gateway = await startGateway({ databaseUrl: database.url, env: envOf(key, previous) })
  }
  /** How many keys each table needs. */
  const keysOf = async (table: string) => {
    const rows = await database.query<{ id: string; count: string }>(
      `SELECT encryption_key_id AS id, count(*)::text AS count FROM ${table} WHERE sealed IS NOT NULL GROUP BY 1`
    )
    return rows.map(({ count, id }) => ({ id, count: Number(count) }))
  }

  beforeAll(async () => {
    database = await openDatabase()
    stub = await StubUpstream.start()
    gateway = await startGateway({ databaseUrl: database.url, env: envOf(first) })
  }, 60_000)
  afterAll(async () => {
    await gateway.stop()
    await stub.stop()
    await database.close()
    rmSync(dataDir, { recursive: true, force: true })
  })

  it("makes the old key superfluous, also when it is killed on the way", async () => {
    await gateway.admin("POST", "/credential/new", { credential_name: "c", credential_info: { api_key: "sk-kept" } })
    await registerModel(gateway, "m", stub.url)
    await gateway.admin("POST", "/callback/new", {
      url: "https://hooks.example/x",
      events: [],
      secret: "whsec_AAAAAAAAAAAA"
    })
    const guardrail = await gateway.admin("POST", "/guardrail/new", {
      guardrail_name: "g",
      guardrail_type: "webhook",
      mode: "log",
      config: { url: "https://hooks.example/g", secret: "guardrail-secret" }
    })
    assert.strictEqual(guardrail.status, 201, guardrail.text)
    const { key } = await gateway.key({ user_id: "dev" })
    const developer = () =>
      gateway.request("POST", "/developer/v1/keys", {
        token: key,
        headers: { "idempotency-key": "once" },
        body: { key_name: "mine" }
      })
    const made = (await developer()).json
    const redact = async (round: number) => {
      const text = Array.from({ length: redactionsPerCall }, (_, at) => `p${round}x${at}@example.org`).join(" ")
      const reply = await gateway.request("POST", "/v1/guardrails/redact", { token: key, body: { text } })
      assert.strictEqual(reply.status, 200, reply.text.slice(0, 300))
      return { text, redacted: (reply.json as { readonly text: string }).text }
    }
    const redactions = [await redact(0), await redact(1), await redact(2), await redact(3)]
    const [oldId] = (await keysOf("credentials")).map(({ id }) => id)

    await restart(second, first)
    const counts = async () => {
      const found = await keysOf("redactions")
      return {
        old: found.find(({ id }) => id === oldId)?.count ?? 0,
        all: found.reduce((sum, { count }) => sum + count, 0)
      }
    }
    const before = await counts()
    assert.deepStrictEqual(before, { old: redactionsPerCall * 4, all: redactionsPerCall * 4 })

    const killed = spawn(process.execPath, [main, "reseal"], {
      env: { PATH: process.env["PATH"], ...commandEnv(second, first) },
      stdio: "ignore"
    })
    await until(counts, ({ old }) => old < before.old, 30_000)
    killed.kill("SIGKILL")
    await once(killed, "exit")

    const run = await sluice(["reseal"], commandEnv(second, first))
    assert.strictEqual(run.code, 0, run.err)
    assert.include(run.out, "public.credentials: 0 rows")
    assert.include(run.out, "public.guardrails: 1 row sealed")
    assert.include(run.out, "Nothing needs GATEWAY_PREVIOUS_ENCRYPTION_KEYS any more.")
    for (const table of tables) {
      const keys = await keysOf(table)
      assert.isTrue(keys.length === 1 && keys[0]!.id !== oldId, `${table}: ${JSON.stringify(keys)}`)
    }
    assert.deepStrictEqual(await counts(), { old: 0, all: before.all })

    await restart(second)
    for (const { redacted, text } of redactions) {
      const reply = await gateway.request("POST", "/v1/guardrails/rehydrate", { token: key, body: { text: redacted } })
      assert.strictEqual((reply.json as { readonly text: string }).text, text)
    }
    assert.deepStrictEqual((await developer()).json, made)
    const chat = await gateway.request("POST", "/v1/chat/completions", { token: key, body: chatBody("m") })
    assert.strictEqual(chat.status, 200, chat.text)
    assert.strictEqual(stub.requests.at(-1)?.headers["authorization"], "Bearer sk-upstream")
  }, 180_000)

  it("says what it cannot open, and exits with 1", async () => {
    const run = await sluice(["reseal"], commandEnv(newKey()))
    assert.strictEqual(run.code, 1)
    assert.match(run.out, /public\.credentials: 1 row of key [0-9a-f]{16} cannot be opened/)
    assert.match(run.err, /^sluice: \d+ rows cannot be opened: put the keys .* GATEWAY_PREVIOUS_ENCRYPTION_KEYS/)
  }, 60_000)
})
