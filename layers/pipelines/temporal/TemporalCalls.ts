/** Calls to Temporal, each with a deadline; a server that is away costs its callers no more than a moment. */
import { Data, Effect, Schedule, Semaphore } from "effect"
import { Unavailable } from "#domain/errors.ts"
import { connectionOptions, type TemporalOptions } from "#layers/pipelines/temporal/connection.ts"

/** Milliseconds for a call and its repetitions: its caller holds a connection of the database meanwhile. */
const deadline = 4000

/** Calls at once; the others wait their turn. */
const permits = 8

/** Milliseconds for which a server that did not answer is not asked again. */
const restAfterFailure = 1000

/** Temporal knows no such open workflow. */
export class WorkflowGone extends Data.TaggedError("WorkflowGone")<{}> {}

/** Temporal has this workflow already. */
export class WorkflowKnown extends Data.TaggedError("WorkflowKnown")<{}> {}

const unavailable = (cause?: unknown) =>
  Object.assign(
    new Unavailable({
      code: "workflow_engine_unavailable",
      message: "The workflow engine cannot be reached.",
      retryAfter: 1
    }),
    cause === undefined ? {} : { cause }
  )

/** The connection is made with the first call, and kept. The SDK is only loaded here. */
export const makeTemporalCalls = Effect.fnUntraced(function* (options: TemporalOptions) {
  const sdk = yield* Effect.promise(() => import("@temporalio/client"))
  const connecting = yield* Effect.promise(() => connectionOptions(options))
  const connection = yield* Effect.acquireRelease(
    // Repetitions are made here, so that they end with the deadline.
    Effect.sync(() => sdk.Connection.lazy({ ...connecting, interceptors: [] })),
    (connection) => Effect.ignore(Effect.promise(() => connection.close()))
  )
  const client = new sdk.Client({ connection, namespace: options.namespace })
  const turns = yield* Semaphore.make(permits)
  let restUntil = 0

  const failureOf = (cause: unknown) => {
    if (cause instanceof sdk.WorkflowNotFoundError) return new WorkflowGone()
    if (cause instanceof sdk.WorkflowExecutionAlreadyStartedError) return new WorkflowKnown()
    return unavailable(cause)
  }

  const call = <A>(what: string, ask: (client: InstanceType<typeof sdk.Client>) => Promise<A>, millis = deadline) =>
    Effect.suspend(() => {
      if (performance.now() < restUntil) return Effect.fail(unavailable())
      const endsAt = Date.now() + millis
      return Effect.tryPromise({
        try: (signal) => connection.withAbortSignal(signal, () => connection.withDeadline(endsAt, () => ask(client))),
        catch: failureOf
      }).pipe(
        Effect.retry({
          schedule: Schedule.spaced("150 millis"),
          times: 2,
          while: (error) => error._tag === "Unavailable"
        }),
        turns.withPermit,
        Effect.timeoutOrElse({ duration: millis, orElse: () => Effect.fail(unavailable()) }),
        Effect.tapError((error) => {
          if (error._tag !== "Unavailable") return Effect.void
          restUntil = performance.now() + restAfterFailure
          return Effect.logWarning(`Temporal did not answer: ${what}`, error.cause)
        })
      )
    })

  return { call }
})

export type TemporalCalls = Effect.Success<ReturnType<typeof makeTemporalCalls>>
