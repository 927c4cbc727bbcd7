/** The first of several processes: brings the database up, keeps the workers running, answers on the ops port. */
import cluster, { type Worker } from "node:cluster"
import { Context, Data, Deferred, Duration, Effect, FiberSet, Layer, Redacted, Schedule, type Scope } from "effect"
import { database, databaseServer, opsListener, secrets, serving } from "#src/app.ts"
import { closeOnDeath } from "#src/commands/handed-over.ts"
import { mergePrometheus } from "#src/commands/merge-prometheus.ts"
import { type FromWorker, isFromWorker, type ToWorker, workerIndexVariable } from "#src/commands/worker-messages.ts"
import type { SettingsShape } from "#src/config.ts"
import type { InstanceSecrets } from "#services/security/InstanceSecrets.ts"
import { type Dependency, Readiness } from "#services/operations/Readiness.ts"
import { Serving } from "#services/operations/Serving.ts"
import { DatabaseServer } from "#services/storage/DatabaseServer.ts"

type Status = Extract<FromWorker, { readonly type: "status" }>

/** It has said why itself. */
class WorkerNotStarted extends Data.TaggedError("WorkerNotStarted")<{ readonly message: string }> {
  constructor(index: number) {
    super({ message: `Worker ${index} could not be started` })
  }
}

/** The workers: `run` starts them and returns when all listen; they are drained when its scope closes. */
class Pool extends Context.Service<
  Pool,
  {
    readonly run: Effect.Effect<void, WorkerNotStarted, Scope.Scope>
    readonly statuses: Effect.Effect<ReadonlyArray<Status | undefined>>
  }
>()("sluice/commands/Pool") {}

const makePool = Effect.fn("makePool")(function* (settings: SettingsShape) {
  const { url } = yield* DatabaseServer
  const workers = new Map<number, Worker>()
  const ready = Array.from({ length: settings.processes }, () => Deferred.makeUnsafe<void, WorkerNotStarted>())
  const asked = new Map<number, (status: Status) => void>()
  let nextId = 0

  const runOnce = (index: number) =>
    Effect.callback<void>((resume) => {
      const worker = cluster.fork({ DATABASE_URL: Redacted.value(url), [workerIndexVariable]: String(index) })
      closeOnDeath(worker)
      workers.set(index, worker)
      worker.on("message", (message: unknown) => {
        if (!isFromWorker(message)) return
        if (message.type === "ready") Deferred.doneUnsafe(ready[index]!, Effect.void)
        else asked.get(message.id)?.(message)
      })
      worker.once("exit", (code, signal) => {
        workers.delete(index)
        // One that never was ready will not be: the start ends, instead of going on trying.
        Deferred.doneUnsafe(ready[index]!, Effect.fail(new WorkerNotStarted(index)))
        resume(Effect.logError(`Worker ${index} ended (${signal ?? code}); starting it again`))
      })
      return Effect.callback<void>((stopped) => {
        if (worker.isDead()) return stopped(Effect.void)
        worker.once("exit", () => stopped(Effect.void))
        worker.process.kill("SIGTERM")
      }).pipe(
        Effect.timeoutOrElse({
          // Its own drain, the flush of its journal, and some air.
          duration: Duration.sum(settings.drainTimeout, Duration.seconds(15)),
          orElse: () => Effect.sync(() => void worker.process.kill("SIGKILL"))
        })
      )
    })

  const run = Effect.gen(function* () {
    const fibers = yield* FiberSet.make()
    for (let index = 0; index < settings.processes; index++) {
      yield* FiberSet.run(fibers, Effect.repeat(runOnce(index), Schedule.spaced("500 millis")))
    }
    yield* Effect.forEach(ready, Deferred.await, { discard: true })
    const serving = yield* Serving
    serving.enter("open")
    yield* Effect.addFinalizer(() => Effect.sync(() => serving.enter("draining")))
  }).pipe(Effect.provideService(Serving, yield* Serving))

  const status = (worker: Worker): Effect.Effect<Status | undefined> =>
    Effect.callback<Status | undefined>((resume) => {
      const id = nextId++
      const forget = () => {
        asked.delete(id)
        worker.off("exit", gone)
      }
      const answered = (answer: Status | undefined) => {
        forget()
        resume(Effect.succeed(answer))
      }
      const gone = () => answered(undefined)
      asked.set(id, answered)
      worker.once("exit", gone)
      // With a callback a channel that is closing is no answer; without one it would be an uncaught error.
      worker.send({ type: "status", id } satisfies ToWorker, () => {})
      return Effect.sync(forget)
    }).pipe(Effect.timeoutOrElse({ duration: "3 seconds", orElse: () => Effect.succeed(undefined) }))

  const statuses = Effect.suspend(() =>
    Effect.forEach(
      ready.map((_, index) => workers.get(index)),
      (worker) => (worker === undefined ? Effect.succeed(undefined) : status(worker)),
      { concurrency: "unbounded" }
    )
  )
  return Pool.of({ run, statuses })
})

/** A dependency is as ready as it is in the worker that sees it worst. */
const worst = (statuses: ReadonlyArray<Status | undefined>): ReadonlyArray<Dependency> => {
  const byName = new Map<string, Dependency>()
  for (const dependency of statuses.flatMap((status) => status?.dependencies ?? [])) {
    const seen = byName.get(dependency.name)
    if (seen === undefined || seen.state === "ready") byName.set(dependency.name, dependency)
  }
  const running = statuses.filter((status) => status !== undefined).length
  const state = running === statuses.length ? "ready" : `${running} of ${statuses.length} ready`
  return [{ name: "processes", state, required: true }, ...byName.values()]
}

const ReadinessOfWorkers = Layer.effect(
  Readiness,
  Effect.map(Pool, (pool) =>
    Readiness.of({
      check: Effect.map(pool.statuses, worst),
      metrics: Effect.map(pool.statuses, (statuses) =>
        mergePrometheus(statuses.flatMap((status) => (status === undefined ? [] : [status.metrics])))
      )
    })
  )
)

/** `greeting` is printed when every worker listens. */
export const primary = (settings: SettingsShape, greeting: Effect.Effect<void, never, InstanceSecrets>) =>
  Layer.effectDiscard(greeting).pipe(
    Layer.provide(Layer.effectDiscard(Effect.flatMap(Pool, (pool) => pool.run))),
    // Beneath the workers, so that it answers until they have drained.
    Layer.provide(opsListener(settings)),
    Layer.provide(ReadinessOfWorkers),
    Layer.provide(Layer.effect(Pool, makePool(settings))),
    Layer.provide(serving),
    // Migrated once, before the first worker starts.
    Layer.provide(database(settings)),
    Layer.provide(databaseServer(settings)),
    Layer.provide(secrets(settings))
  )
