/** One of several processes behind the API port (GATEWAY_PROCESSES). The primary owns the database server and the ops port. */
import { Effect, Layer } from "effect"
import { apiListener, database, databaseServerOf, secrets, services, serving } from "#src/app.ts"
import { type FromWorker, isToWorker, workerIndexVariable } from "#src/commands/worker-messages.ts"
import type { SettingsShape } from "#src/config.ts"
import { Readiness } from "#services/operations/Readiness.ts"

const send = (message: FromWorker) => Effect.sync(() => void process.send?.(message))

/** Answers the primary for as long as the layer lives; a primary that is gone ends the worker. */
const reporting = Layer.effectDiscard(
  Effect.gen(function* () {
    const readiness = yield* Readiness
    const run = Effect.runForkWith(yield* Effect.context())
    const onMessage = (message: unknown) => {
      if (!isToWorker(message)) return
      run(
        Effect.flatMap(Effect.all([readiness.metrics, readiness.check]), ([metrics, dependencies]) =>
          send({ type: "status", id: message.id, metrics, dependencies })
        )
      )
    }
    const onDisconnect = () => void process.kill(process.pid, "SIGTERM")
    yield* Effect.acquireRelease(
      Effect.sync(() => process.on("message", onMessage).on("disconnect", onDisconnect)),
      () => Effect.sync(() => process.off("message", onMessage).off("disconnect", onDisconnect))
    )
  })
)

const ready = Layer.effectDiscard(send({ type: "ready" }))

export const worker = (settings: SettingsShape) =>
  ready.pipe(
    Layer.provide(apiListener(settings)),
    // Beneath the API, so that the primary is answered until the drain is over.
    Layer.provide(reporting),
    Layer.provide(serving),
    Layer.provide(services(settings, { index: Number(process.env[workerIndexVariable]), count: settings.processes })),
    Layer.provide(database(settings)),
    Layer.provide(databaseServerOf(settings)),
    Layer.provide(secrets(settings))
  )
