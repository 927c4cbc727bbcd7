/** A start that cannot be: one line that names the setting, exit code 1, and nothing on standard output. */
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs"
import { createServer, type Server } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { ConfigProvider, Effect, Layer } from "effect"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { Settings } from "#src/config.ts"
import { sluice } from "#test/support/command.ts"

const key = Buffer.alloc(32, 7).toString("base64")

const unusable: ReadonlyArray<readonly [setting: string, value: string, line: string]> = [
  ["GATEWAY_PORT", "abc", "GATEWAY_PORT: must be a number"],
  ["GATEWAY_PORT", "70000", "GATEWAY_PORT: must be a value between 1 and 65535"],
  ["GATEWAY_PORT", "4001", "GATEWAY_OPS_PORT: must differ from GATEWAY_PORT"],
  ["GATEWAY_PROCESSES", "0", "GATEWAY_PROCESSES: must be between 1 and 64"],
  ["GATEWAY_PROCESSES", "1.5", "GATEWAY_PROCESSES: must be an integer"],
  ["GATEWAY_ENCRYPTION_KEY", "short", "GATEWAY_ENCRYPTION_KEY: must be 32 bytes, base64"],
  [
    "GATEWAY_PREVIOUS_ENCRYPTION_KEYS",
    `${key},short`,
    "GATEWAY_PREVIOUS_ENCRYPTION_KEYS: each, separated by commas, must be 32 bytes, base64"
  ],
  ["GATEWAY_ENVIRONMENT", "prod", 'GATEWAY_ENVIRONMENT: must be "development" or "production"'],
  ["GATEWAY_ENVIRONMENT", "production", "GATEWAY_MASTER_KEY: must be set in production"],
  [
    "DATABASE_URL",
    "nonsense",
    "DATABASE_URL: must be a PostgreSQL URL, such as postgresql://user:password@host:5432/database"
  ],
  ["GATEWAY_JWKS_URL", "nonsense", "GATEWAY_JWKS_URL: must be a URL with http: or https:"],
  [
    "GATEWAY_CORS_ORIGINS",
    "https://a.example,https://b.example/",
    "GATEWAY_CORS_ORIGINS: 'https://b.example/' is no origin, such as https://app.example.com (no path, no slash at its end)"
  ],
  [
    "TEMPORAL_ADDRESS",
    "http://temporal:7233",
    "TEMPORAL_ADDRESS: must be a host and a port without a scheme, such as temporal.example.com:7233"
  ],
  ["TEMPORAL_NAMESPACE", "a b", "TEMPORAL_NAMESPACE: must be the name of a namespace"],
  ["TEMPORAL_NAMESPACE", "embedded", "TEMPORAL_NAMESPACE: 'embedded' is the name of the gateway's own engine"],
  ["TEMPORAL_TASK_QUEUE", "a'b", "TEMPORAL_TASK_QUEUE: must have letters, digits, _, . and - only"],
  [
    "TEMPORAL_TLS_CLIENT_CERT_PATH",
    "cert.pem",
    "TEMPORAL_TLS_CLIENT_KEY_PATH: must be set too: it belongs to TEMPORAL_TLS_CLIENT_CERT_PATH"
  ],
  ["GATEWAY_DRAIN_TIMEOUT", "soon", "GATEWAY_DRAIN_TIMEOUT: must be a duration, such as 24h"],
  ["OTEL_EXPORTER_OTLP_ENDPOINT", "nonsense", "OTEL_EXPORTER_OTLP_ENDPOINT: must be a valid URL string"]
]

describe("settings that cannot be used", () => {
  it.each(unusable)("%s=%s", async (setting, value, line) => {
    const layer = Settings.layer.pipe(
      Layer.provide(ConfigProvider.layer(ConfigProvider.fromUnknown({ [setting]: value })))
    )
    const refused = await Effect.runPromise(Effect.flip(Effect.scoped(Layer.build(layer))))
    assert.strictEqual(refused.message, line)
  })
})

describe("settings that the machine refuses", () => {
  const directory = mkdtempSync(join(tmpdir(), "sluice-start-"))
  const file = join(directory, "file")
  const dataDir = join(directory, "data")
  const servers: Array<Server> = []

  const listening = async (): Promise<string> => {
    const server = createServer()
    servers.push(server)
    await new Promise<void>((done) => server.listen({ host: "127.0.0.1", port: 0 }, done))
    const address = server.address()
    return String(typeof address === "object" ? address?.port : "")
  }
  const closeAll = () => Promise.all(servers.splice(0).map((server) => new Promise((done) => server.close(done))))
  let free: Readonly<Record<string, string>>
  let taken: string

  beforeAll(async () => {
    writeFileSync(file, "")
    free = { GATEWAY_PORT: await listening(), GATEWAY_OPS_PORT: await listening() }
    await closeAll()
    taken = await listening()
  })
  afterAll(async () => {
    await closeAll()
    rmSync(directory, { recursive: true, force: true })
  })

  const refusal = async (env: Readonly<Record<string, string>>) =>
    await sluice(["serve"], { GATEWAY_DATA_DIR: dataDir, ...free, ...env })

  it("a data dir that is a file", async () => {
    const err = `sluice: GATEWAY_DATA_DIR: cannot use ${file}: it is no directory\n`
    assert.deepStrictEqual(await refusal({ GATEWAY_DATA_DIR: file }), { code: 1, err, out: "" })
  })

  it("a port that is taken, before a database is made and a worker started", async () => {
    const err = `sluice: GATEWAY_PORT: 127.0.0.1:${taken} is taken by another program\n`
    const found = await refusal({ GATEWAY_PROCESSES: "2", GATEWAY_PORT: taken })
    assert.deepStrictEqual(found, { code: 1, err, out: "" })
    assert.deepStrictEqual(readdirSync(dataDir), [])
  })

  it("a database that is not there", async () => {
    const found = await refusal({ DATABASE_URL: `postgresql://u:hidden@127.0.0.1:${free["GATEWAY_PORT"]}/x` })
    const address = `127.0.0.1:${free["GATEWAY_PORT"]}`
    const err = `sluice: DATABASE_URL: The database cannot be migrated: connect ECONNREFUSED ${address}\n`
    assert.deepStrictEqual(found, { code: 1, err, out: "" })
  })
})
