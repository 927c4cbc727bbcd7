import { Context, type Effect } from "effect"
import type { SqlError } from "effect/sql/SqlError"
import type { Unavailable } from "#domain/errors.ts"
import type { Verdict } from "#domain/evals.ts"
import type { JsonObject } from "#domain/json.ts"

/** What a run of an eval job is started with. */
export interface EvalRun {
  readonly tenant: string
  readonly organizationId: string
  readonly evalJobId: string
  readonly actor: string
  /** The pinned conditions: suite, version, snapshots, seed, temperature, models. */
  readonly inputs: JsonObject
  /** Unix milliseconds. */
  readonly startedAt: number
}

/**
 * What drives an eval job. Everything but `statuses` runs inside the transaction that writes the job, so that both are
 * there or neither (management-api.md, "eval_job", rule 3). Whoever implements `start` writes the run row, the
 * `pipeline.run.start` provenance entry, and asks its engine last.
 */
export class EvalRunStarter extends Context.Service<
  EvalRunStarter,
  {
    /** Returns the run's id. A failure rolls the job back. */
    readonly start: (run: EvalRun) => Effect.Effect<string, SqlError | Unavailable>
    /** The first item was pulled or scored. May be told more than once. */
    readonly running: (tenant: string, runId: string) => Effect.Effect<void, SqlError>
    /** The verdict was recorded: the run is over. Told once; the implementation leaves `pipeline.run.completed`. */
    readonly decided: (
      tenant: string,
      runId: string,
      decision: {
        readonly evalJobId: string
        readonly organizationId: string
        readonly verdict: Verdict
        readonly aggregateScore: number
        readonly at: number
      }
    ) => Effect.Effect<void, SqlError>
    /** The statuses of runs, by id; an unknown run is left out. */
    readonly statuses: (
      tenant: string,
      runIds: ReadonlyArray<string>
    ) => Effect.Effect<ReadonlyMap<string, string>, SqlError>
  }
>()("sluice/evals/EvalRunStarter") {}
