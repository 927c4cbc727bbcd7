/** What of the settings only the machine can refuse, asked before anything is started: each refusal names its setting. */
import { accessSync, constants, existsSync, mkdirSync, readFileSync, statSync } from "node:fs"
import { createServer } from "node:net"
import { dirname, resolve } from "node:path"
import { setTimeout as pause } from "node:timers/promises"
import { Effect } from "effect"
import { SettingRefused, type SettingsShape } from "#src/config.ts"

const codeOf = (cause: unknown): string => (cause as NodeJS.ErrnoException).code ?? "unknown"

/** Not Node's recursive mkdir, which never ends in a file system that refuses with ENOENT, such as /proc. */
const makeDirectory = (path: string): void => {
  if (existsSync(path)) return
  const parent = dirname(path)
  if (parent !== path) makeDirectory(parent)
  mkdirSync(path, { mode: 0o700 })
}

/** The data dir exists and can be written, or the start ends here. */
export const checkDataDir = (settings: SettingsShape): Effect.Effect<void, SettingRefused> => {
  const path = resolve(settings.dataDir)
  return Effect.try({
    try: () => {
      makeDirectory(path)
      if (!statSync(path).isDirectory()) throw Object.assign(new Error(), { code: "it is no directory" })
      accessSync(path, constants.R_OK | constants.W_OK | constants.X_OK)
    },
    catch: (cause) => new SettingRefused({ setting: "GATEWAY_DATA_DIR", why: `cannot use ${path}: ${codeOf(cause)}` })
  })
}

const checkFile = (setting: string, path: string | undefined): Effect.Effect<void, SettingRefused> =>
  path === undefined
    ? Effect.void
    : Effect.try({
        try: () => void readFileSync(path),
        catch: (cause) => new SettingRefused({ setting, why: `cannot read ${path}: ${codeOf(cause)}` })
      })

/** A process that has just been ended may hold its port for a moment longer. */
const patienceMillis = 1_500

const listenOnce = (host: string, port: number): Promise<string | undefined> =>
  new Promise((done) => {
    const server = createServer()
    server.once("error", (cause) => done(codeOf(cause)))
    server.listen({ host, port }, () => server.close(() => done(undefined)))
  })

const checkAddress = Effect.fnUntraced(function* (prefix: string, host: string, port: number) {
  const code = yield* Effect.promise(async () => {
    const began = performance.now()
    while (true) {
      const found = await listenOnce(host, port)
      if (found !== "EADDRINUSE" || performance.now() - began > patienceMillis) return found
      await pause(100)
    }
  })
  if (code === undefined) return
  if (code === "EADDRINUSE") {
    return yield* new SettingRefused({ setting: `${prefix}PORT`, why: `${host}:${port} is taken by another program` })
  }
  const setting = code === "EACCES" ? `${prefix}PORT` : `${prefix === "GATEWAY_OPS_" ? "GATEWAY_" : prefix}HOST`
  return yield* new SettingRefused({ setting, why: `cannot listen on ${host}:${port}: ${code}` })
})

/** The files that the TLS of Temporal names. */
export const checkTemporalFiles = Effect.fnUntraced(function* (settings: SettingsShape) {
  if (settings.temporalAddress === undefined) return
  yield* checkFile("TEMPORAL_TLS_CLIENT_CERT_PATH", settings.temporalTlsCertPath)
  yield* checkFile("TEMPORAL_TLS_CLIENT_KEY_PATH", settings.temporalTlsKeyPath)
  yield* checkFile("TEMPORAL_TLS_SERVER_CA_CERT_PATH", settings.temporalTlsCaPath)
})

/** Everything that `serve` needs of the machine. */
export const checkMachine = Effect.fn("checkMachine")(function* (settings: SettingsShape) {
  yield* checkDataDir(settings)
  yield* checkFile("GATEWAY_UDF_TLS_CERT", settings.udfTlsCert)
  yield* checkFile("GATEWAY_UDF_TLS_KEY", settings.udfTlsKey)
  yield* checkFile("GATEWAY_UDF_TLS_CLIENT_CA", settings.udfTlsClientCa)
  yield* checkTemporalFiles(settings)
  yield* checkAddress("GATEWAY_", settings.host, settings.port)
  yield* checkAddress("GATEWAY_OPS_", settings.host, settings.opsPort)
  if (settings.udfTlsCert !== undefined) yield* checkAddress("GATEWAY_UDF_", settings.udfHost, settings.udfPort)
})

/** A database that cannot be had is the fault of the setting that names it. */
export const namingDatabase =
  (settings: SettingsShape) =>
  <E>(error: E): E | SettingRefused =>
    settings.databaseUrl !== undefined &&
    error instanceof Error &&
    error.message.startsWith("The database cannot be migrated")
      ? new SettingRefused({ setting: "DATABASE_URL", why: error.message })
      : error
