import cluster from "node:cluster"
import { Console, Effect, Layer, Logger, Redacted, References } from "effect"
import { Command } from "effect/cli"
import { apiListener, database, databaseServer, opsListener, secrets, services, serving } from "#src/app.ts"
import { Settings, type SettingsShape } from "#src/config.ts"
import { primary } from "#src/commands/primary.ts"
import { checkMachine, namingDatabase } from "#src/commands/start-checks.ts"
import { worker } from "#src/commands/worker.ts"
import { InstanceSecrets } from "#services/security/InstanceSecrets.ts"

const logLevels = { debug: "Debug", info: "Info", warn: "Warn", error: "Error" } as const

/** One JSON object a line, on standard error: standard output is for what the operator asked for. */
export const logging = (settings: SettingsShape) =>
  Layer.merge(
    Logger.layer([Logger.withConsoleError(Logger.formatJson)]),
    Layer.succeed(References.MinimumLogLevel, logLevels[settings.logLevel])
  )

/** An IPv6 address stands in brackets. */
const inUrl = (host: string): string => (host.includes(":") ? `[${host}]` : host)

const greeting = Effect.fn("greeting")(function* (settings: SettingsShape) {
  const { masterKey, masterKeyGenerated } = yield* InstanceSecrets
  const url = `http://${inUrl(settings.host)}:${settings.port}`
  const key = masterKeyGenerated ? Redacted.value(masterKey) : "$GATEWAY_MASTER_KEY"
  const model = settings.environment === "production" ? "<model>" : "sandbox/chat"
  yield* Console.log(`Sluice is listening on ${url} (ops: http://${inUrl(settings.host)}:${settings.opsPort})`)
  if (masterKeyGenerated) {
    yield* Console.log(`Master key (shown this once, kept in ${settings.dataDir}/secrets.json): ${key}`)
  } else if (settings.masterKey === undefined) {
    yield* Console.log(`The master key is in ${settings.dataDir}/secrets.json`)
  }
  yield* Console.log(
    `Try it:\n  curl ${url}/v1/chat/completions -H "Authorization: Bearer ${key}" -H "Content-Type: application/json" \\\n` +
      `    -d '{"model":"${model}","messages":[{"role":"user","content":"Hello"}]}'`
  )
})

/** One process does everything. */
const alone = (settings: SettingsShape) =>
  Layer.effectDiscard(greeting(settings)).pipe(
    Layer.provide(apiListener(settings)),
    // Beneath the API, so that it answers until the drain is over.
    Layer.provide(opsListener(settings)),
    Layer.provide(services(settings, { index: 0, count: 1 })),
    Layer.provide(serving),
    Layer.provide(database(settings)),
    Layer.provide(databaseServer(settings)),
    Layer.provide(secrets(settings))
  )

export const serve = Command.make(
  "serve",
  {},
  Effect.fn(function* () {
    const settings = yield* Settings
    const launch = <E>(program: Layer.Layer<never, E>) =>
      Layer.launch(program.pipe(Layer.provide(logging(settings)))).pipe(Effect.mapError(namingDatabase(settings)))
    if (cluster.isWorker) return yield* launch(worker(settings))
    yield* checkMachine(settings)
    yield* settings.processes === 1 ? launch(alone(settings)) : launch(primary(settings, greeting(settings)))
  })
).pipe(Command.withDescription("Serve the gateway (the default)"), Command.provide(Settings.layer))
