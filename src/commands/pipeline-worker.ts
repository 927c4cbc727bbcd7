/** `sluice worker`: works on the runs of pipelines for Temporal, beside the gateways or on machines of its own. */
import { existsSync } from "node:fs"
import { join, resolve } from "node:path"
import { Console, Effect, Layer } from "effect"
import { Command } from "effect/cli"
import { PipelineWorker } from "#services/pipelines/PipelineWorker.ts"
import { database, pipelineWorker, runningDatabaseServer, secrets } from "#src/app.ts"
import { logging } from "#src/commands/serve.ts"
import { checkDataDir, checkTemporalFiles, namingDatabase } from "#src/commands/start-checks.ts"
import { SettingRefused, Settings, type SettingsShape } from "#src/config.ts"

/** A worker makes no secrets: with others than the gateways' it could read no credential of a provider. */
const checkSecrets = (settings: SettingsShape) =>
  settings.encryptionKey !== undefined || existsSync(join(resolve(settings.dataDir), "secrets.json"))
    ? Effect.void
    : new SettingRefused({
        setting: "GATEWAY_ENCRYPTION_KEY",
        why: `must be that of the gateways: there is no secrets.json in ${resolve(settings.dataDir)}`
      })

export const pipelineWorkerCommand = Command.make(
  "worker",
  {},
  Effect.fn(function* () {
    const settings = yield* Settings
    const worker = pipelineWorker(settings)
    if (worker === undefined) {
      return yield* new SettingRefused({
        setting: "TEMPORAL_ADDRESS",
        why: "must be set: without Temporal the gateways work on pipelines themselves"
      })
    }
    yield* checkDataDir(settings)
    yield* checkSecrets(settings)
    yield* checkTemporalFiles(settings)
    const { temporalAddress, temporalNamespace, temporalTaskQueue } = settings
    const work = PipelineWorker.use(({ ended }) =>
      Effect.andThen(
        Console.log(
          `Sluice works on pipelines for Temporal at ${temporalAddress} (namespace ${temporalNamespace}, task queue ${temporalTaskQueue})`
        ),
        ended
      )
    )
    yield* work.pipe(
      Effect.provide(
        worker.pipe(
          Layer.provide(database(settings)),
          Layer.provide(runningDatabaseServer(settings)),
          Layer.provide(secrets(settings)),
          Layer.provide(logging(settings))
        )
      ),
      Effect.mapError(namingDatabase(settings))
    )
  })
).pipe(
  Command.withDescription("Work on the runs of pipelines for Temporal (TEMPORAL_ADDRESS)"),
  Command.provide(Settings.layer)
)
