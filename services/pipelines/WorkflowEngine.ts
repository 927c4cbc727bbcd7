import { Context, type Effect } from "effect"
import type { InvalidRequest, Unavailable } from "#domain/errors.ts"
import type { HistoryEvent } from "#domain/pipelines/runs.ts"

/** Whose run it is. */
export interface RunKey {
  readonly tenant: string
  readonly runId: string
}

/** A human's decision on its way to a run. */
export interface ReviewSignal {
  /** Undefined: the review that has waited longest. */
  readonly step: string | undefined
  readonly approved: boolean
  readonly reason: string
  readonly reviewer: string
}

/**
 * Works on the runs of pipelines: durably, each step as a retried activity, on whichever process has room. What a run
 * does and when stands in its definition; its row and callbacks are told through `RunRecords`. Fails with
 * `workflow_engine_not_configured` or `workflow_engine_unavailable`.
 */
export class WorkflowEngine extends Context.Service<
  WorkflowEngine,
  {
    readonly namespace: string
    /** Undefined where there is an engine; else what its operations answer. */
    readonly refusal: Unavailable | undefined
    /** The name that a run has in the engine. */
    readonly workflowId: (runId: string) => string
    /**
     * Starts the run whose row the caller has written in the transaction around this; nothing runs before that commits,
     * and a failure rolls it back.
     */
    readonly start: (key: RunKey) => Effect.Effect<void, Unavailable>
    /**
     * The transaction around a `start` has failed: what was started and has no row now is given up. Returns at once and never
     * fails.
     */
    readonly discard: (key: RunKey) => Effect.Effect<void>
    /** Decides a review. Fails with `invalid_state` where none waits. */
    readonly decide: (key: RunKey, signal: ReviewSignal) => Effect.Effect<void, InvalidRequest | Unavailable>
    /** Graceful: running activities are interrupted and clean up, no later one is scheduled. A run that is over stays so. */
    readonly cancel: (key: RunKey, actor: string) => Effect.Effect<void, Unavailable>
    /** At once and without ceremony. A run that is over stays so. */
    readonly terminate: (key: RunKey, actor: string, reason: string) => Effect.Effect<void, Unavailable>
    /** Oldest first. */
    readonly history: (
      key: RunKey,
      offset: number,
      limit: number
    ) => Effect.Effect<ReadonlyArray<HistoryEvent>, Unavailable>
    /**
     * Writes into the run's row what became of it in an engine that others can reach too; true: something was written. Takes a
     * second at most; an engine that does not answer leaves the row as it is.
     */
    readonly refresh: (key: RunKey) => Effect.Effect<boolean>
  }
>()("sluice/pipelines/WorkflowEngine") {}
