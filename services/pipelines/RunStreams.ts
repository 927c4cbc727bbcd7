import { Context, type Effect, type Stream } from "effect"
import type { Unavailable } from "#domain/errors.ts"
import type { RunKey } from "#services/pipelines/WorkflowEngine.ts"

/**
 * What the viewers of a run are sent (management-api.md, "Events", rule 1), as Server-Sent Events: `state-change` at once
 * and at every change, `heartbeat` when two seconds brought none, `terminal` at the end, which closes the stream.
 */
export class RunStreams extends Context.Service<
  RunStreams,
  {
    /** The events of a run that exists. All viewers in this process share one poll. Fails with `overloaded`. */
    readonly watch: (key: RunKey) => Effect.Effect<Stream.Stream<Uint8Array>, Unavailable>
    /** How many are watching now. */
    readonly viewers: () => number
  }
>()("sluice/pipelines/RunStreams") {}
