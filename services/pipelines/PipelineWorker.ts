import { Context, Data, type Effect } from "effect"

/** The worker cannot start or go on. The message names the setting at fault. */
export class PipelineWorkerFailed extends Data.TaggedError("PipelineWorkerFailed")<{ readonly message: string }> {}

/**
 * Works on runs of pipelines for a workflow engine outside. It is at work once the layer is built; when that closes it takes no
 * more, lets what it is at come to its end for as long as the drain may take, and hands the rest to others.
 */
export class PipelineWorker extends Context.Service<
  PipelineWorker,
  {
    /** Ends when the worker does so of itself. */
    readonly ended: Effect.Effect<never, PipelineWorkerFailed>
  }
>()("sluice/pipelines/PipelineWorker") {}
