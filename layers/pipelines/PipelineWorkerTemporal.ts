import { join } from "node:path"
import { fileURLToPath } from "node:url"
import type { LogLevel as SdkLogLevel } from "@temporalio/worker"
import { Cause, type Context, Deferred, Duration, Effect, Exit, Layer } from "effect"
import type { SqlClient } from "effect/sql"
import { type ActivityEffects, type ActivityFailure, makeActivities } from "#layers/pipelines/temporal/activities.ts"
import { connectionOptions, type TemporalOptions } from "#layers/pipelines/temporal/connection.ts"
import { heartbeatTimeout } from "#layers/pipelines/temporal/protocol.ts"
import type { Expressions } from "#services/pipelines/Expressions.ts"
import type { Operators } from "#services/pipelines/Operators.ts"
import { PipelineWorker, PipelineWorkerFailed } from "#services/pipelines/PipelineWorker.ts"
import type { RunRecords } from "#services/pipelines/RunRecords.ts"
import type { Tenants } from "#services/tenants/Tenants.ts"

export interface TemporalWorkerOptions extends TemporalOptions {
  /** How long running steps may take to come to their end when the worker stops. */
  readonly drainTimeout: Duration.Duration
  /** Steps worked on at once; the items of a `map` count as one. Default 128, as in the embedded engine. */
  readonly maxSteps?: number
}

/** Milliseconds between two signs of life of a step, which also bring its cancellation. */
const heartbeatInterval = 2000

/** The source itself, also where the program runs from its bundle: the SDK makes a bundle of its own for the workflow. */
const workflows = join(fileURLToPath(new URL("./temporal/", import.meta.url)), "workflow.ts")

const load = Effect.tryPromise({
  try: async () => ({ sdk: await import("@temporalio/worker"), activity: await import("@temporalio/activity") }),
  catch: (cause) =>
    new PipelineWorkerFailed({
      message: `Temporal's worker is not installed (npm install without --omit=optional): ${String(cause).split("\n")[0]}`
    })
})

type Loaded = Effect.Success<typeof load>

const levels: { readonly [L in SdkLogLevel]: (message: string) => Effect.Effect<void> } = {
  TRACE: Effect.logTrace,
  DEBUG: Effect.logDebug,
  INFO: Effect.logDebug,
  WARN: Effect.logWarning,
  ERROR: Effect.logError
}

/** Lets the SDK write to the gateway's log, and leaves signals to the program. Once a process. */
const install = ({ sdk }: Loaded, run: (effect: Effect.Effect<void>) => void) => {
  const log = (level: SdkLogLevel, message: string, meta?: object) => {
    const details = Object.entries(meta ?? {}).flatMap(([name, value]): ReadonlyArray<[string, string]> =>
      typeof value === "object" && !(value instanceof Error) ? [] : [[name, String(value)]]
    )
    run(Effect.annotateLogs(levels[level](message), Object.fromEntries(details)))
  }
  sdk.Runtime.install({
    shutdownSignals: [],
    logger: {
      log,
      trace: (message, meta) => log("TRACE", message, meta),
      debug: (message, meta) => log("DEBUG", message, meta),
      info: (message, meta) => log("INFO", message, meta),
      warn: (message, meta) => log("WARN", message, meta),
      error: (message, meta) => log("ERROR", message, meta)
    },
    telemetryOptions: { logging: { filter: { core: "WARN", other: "ERROR" }, forward: {} } }
  })
}

/** Effects as Temporal's activities: alive while they run, interrupted when they are cancelled. */
const promised = ({ activity }: Loaded, effects: ActivityEffects, services: Context.Context<never>) => {
  const { ApplicationFailure, Context: ActivityContext } = activity
  const runExit = Effect.runPromiseExitWith(services)

  const failure = (cause: Cause.Cause<ActivityFailure>) => {
    const error = cause.reasons.find((reason) => reason._tag === "Fail")?.error
    switch (error?._tag) {
      case "RunAbsent":
        return ApplicationFailure.nonRetryable(error.message, "run_absent")
      case "OwnershipLost":
        return ApplicationFailure.retryable("Another worker has this step, or had it.", "ownership_lost")
      case "SqlError":
        return ApplicationFailure.retryable("The database cannot be asked.", "database_unavailable")
      default:
        return ApplicationFailure.retryable("The gateway failed to do this step.", "internal_error")
    }
  }

  const one =
    <P extends ReadonlyArray<never>, A>(
      name: string,
      effect: (...parameters: P) => Effect.Effect<A, ActivityFailure>
    ) =>
    async (...parameters: P): Promise<A> => {
      const context = ActivityContext.current()
      const { cancellationSignal: signal, info } = context
      const beat = setInterval(() => context.heartbeat(), heartbeatInterval)
      try {
        const told = Effect.tapCause(effect(...parameters), (cause) =>
          Cause.hasInterruptsOnly(cause) ? Effect.void : Effect.logWarning(`The activity '${name}' failed`, cause)
        ).pipe(Effect.annotateLogs({ workflow_id: info.workflowExecution?.workflowId ?? "" }))
        const exit = await runExit(told, { signal })
        if (Exit.isSuccess(exit)) return exit.value
        if (!signal.aborted) throw failure(exit.cause)
        // A step that is only put down is taken up by another worker.
        if (context.cancellationDetails?.cancelRequested !== true) {
          throw ApplicationFailure.retryable("The worker put this step down.", "put_down")
        }
        throw signal.reason
      } finally {
        clearInterval(beat)
      }
    }

  return Object.fromEntries(
    Object.entries(effects).map(([name, effect]) => [
      name,
      one(name, effect as (...parameters: ReadonlyArray<never>) => Effect.Effect<unknown, ActivityFailure>)
    ])
  )
}

/** Runs of pipelines as workflows of Temporal: one workflow that interprets any definition, and its activities. */
export const layer = (
  options: TemporalWorkerOptions
): Layer.Layer<
  PipelineWorker,
  PipelineWorkerFailed,
  SqlClient.SqlClient | Tenants | RunRecords | Expressions | Operators
> =>
  Layer.effect(
    PipelineWorker,
    Effect.gen(function* () {
      const loaded = yield* load
      const { sdk } = loaded
      const services = yield* Effect.context<never>()
      const fork = Effect.runForkWith(services)
      yield* Effect.sync(() => install(loaded, (effect) => void fork(effect)))
      const effects = yield* makeActivities
      const why = (cause: unknown) => (cause instanceof Error ? (cause.message.split("\n")[0] ?? "") : String(cause))
      const connection = yield* Effect.acquireRelease(
        Effect.tryPromise({
          try: async () => sdk.NativeConnection.connect(await connectionOptions(options)),
          catch: (cause) =>
            new PipelineWorkerFailed({
              message: `TEMPORAL_ADDRESS: cannot reach Temporal at ${options.address}: ${why(cause)}`
            })
        }),
        (connection) => Effect.ignore(Effect.promise(() => connection.close()))
      )
      const worker = yield* Effect.tryPromise({
        try: () =>
          sdk.Worker.create({
            connection,
            namespace: options.namespace,
            taskQueue: options.taskQueue,
            workflowsPath: workflows,
            activities: promised(loaded, effects, services),
            maxConcurrentActivityTaskExecutions: options.maxSteps ?? 128,
            // A cancellation comes with the answer to a heartbeat.
            maxHeartbeatThrottleInterval: heartbeatInterval,
            defaultHeartbeatThrottleInterval: heartbeatInterval,
            stickyQueueScheduleToStartTimeout: 5000,
            shutdownGraceTime: Duration.toMillis(options.drainTimeout),
            shutdownForceTime: Duration.toMillis(options.drainTimeout) + heartbeatTimeout
          }),
        catch: (cause) => new PipelineWorkerFailed({ message: `Temporal's worker cannot start: ${why(cause)}` })
      })
      const ended = yield* Deferred.make<never, PipelineWorkerFailed>()
      yield* Effect.acquireRelease(
        Effect.sync(() =>
          worker.run().catch((cause: unknown) => {
            Deferred.doneUnsafe(
              ended,
              Effect.fail(new PipelineWorkerFailed({ message: `Temporal's worker ended: ${why(cause)}` }))
            )
          })
        ),
        (running) =>
          Effect.promise(() => {
            if (worker.getState() === "RUNNING") worker.shutdown()
            return running
          })
      )
      return PipelineWorker.of({ ended: Deferred.await(ended) })
    })
  )
