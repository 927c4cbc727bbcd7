import { Context, type Effect, type Scope } from "effect"
import type { Unavailable } from "#domain/errors.ts"

/** How a worker thread treats its jobs. */
export interface WorkerThreadOptions {
  /** For logs. */
  readonly name: string
  /** A module that exports `handle`: a `JobHandler`. Loaded in the thread, at the first job. */
  readonly handler: URL
  /** Jobs that may wait or run at once. */
  readonly maxJobs: number
  /** The sum of the weights of those jobs. */
  readonly maxWeight: number
  /** Milliseconds after which a job has failed. */
  readonly timeout: number
  /** A job that runs out of time ends the thread at once, with all its jobs: for threads that have one job at a time. */
  readonly endsLate?: boolean
}

/**
 * What a handler's module exports as `handle`. It yields often (every few milliseconds of work), so that jobs share the
 * thread fairly and an abandoned one stops.
 */
export type JobHandler<Job, Result> = (job: Job) => Generator<void, Result, void>

/** A thread that works on jobs. Started by its first job; started again by the next one should it die. */
export interface WorkerThread<Job, Result> {
  /** Fails with `overloaded` when the queue is full, the job fails, or its time is over. Interruption drops the job. */
  readonly run: (job: Job, weight: number) => Effect.Effect<Result, Unavailable>
}

/** Threads for work that would hold up the event loop. Jobs and results are copied (structured clone). */
export class WorkerThreads extends Context.Service<
  WorkerThreads,
  {
    /** The thread ends with the scope. */
    readonly open: <Job, Result>(
      options: WorkerThreadOptions
    ) => Effect.Effect<WorkerThread<Job, Result>, never, Scope.Scope>
  }
>()("sluice/workers/WorkerThreads") {}
