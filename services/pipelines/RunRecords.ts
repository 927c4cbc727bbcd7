import { Context, type Effect } from "effect"
import type { SqlError } from "effect/sql/SqlError"
import type { JsonObject } from "#domain/json.ts"
import type { PipelineDefinition } from "#domain/pipelines/definition.ts"
import type { RunError, RunStatus } from "#domain/pipelines/runs.ts"
import type { ManagementPrincipal } from "#domain/principal.ts"
import type { RunKey } from "#services/pipelines/WorkflowEngine.ts"

/** What an engine needs to work on a run. */
export interface RunRecord {
  readonly definition: PipelineDefinition
  readonly inputs: JsonObject
  readonly principal: ManagementPrincipal
  /** Unix milliseconds. */
  readonly createdAt: number
}

/** What became of a run. */
export interface RunTransition {
  readonly status: RunStatus
  readonly outputs?: JsonObject
  readonly error?: RunError
  /** The step that waits for a review. */
  readonly step?: string
}

/** The rows of runs as a workflow engine reads and writes them. */
export class RunRecords extends Context.Service<
  RunRecords,
  {
    /** Undefined where there is no such run. */
    readonly load: (key: RunKey) => Effect.Effect<RunRecord | undefined, SqlError>
    /**
     * Inside the caller's transaction: the new status, and the event that callbacks hear of it. A run that is over stays
     * as it is; false says so.
     */
    readonly transition: (key: RunKey, transition: RunTransition) => Effect.Effect<boolean, SqlError>
  }
>()("sluice/pipelines/RunRecords") {}
