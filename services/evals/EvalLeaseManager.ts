import { Context, type Effect } from "effect"
import type { InvalidRequest, NotFound, Unavailable } from "#domain/errors.ts"
import type { EvalJobStatus, Verdict } from "#domain/evals.ts"
import type { Json, JsonObject } from "#domain/json.ts"

/** A test case that a worker has until its lease ends. */
export interface LeasedItem {
  readonly testCaseId: string
  readonly input: Json
  /** Undefined: the test case says nothing. */
  readonly expected: Json | undefined
  /** What else the test case says. */
  readonly metadata: JsonObject
  readonly weight: number
  /** How often the item was leased, this time included. */
  readonly attempt: number
}

/** What one pull got, under the job's pinned conditions. */
export interface Lease {
  readonly id: string
  /** Unix milliseconds. */
  readonly expiresAt: number
  readonly seed: number | null
  readonly modelAssetId: string | null
  readonly modelVersion: string | null
  readonly items: ReadonlyArray<LeasedItem>
}

/** A score as a worker hands it in. */
export interface NewScore {
  readonly jobId: string
  readonly testCaseId: string
  readonly score: number
  readonly label: string | null
  readonly explanation: string | null
  readonly genAiResponseId: string | null
  readonly scoredBy: string
  /** Who handed it in, as audit entries name it. */
  readonly actor: string
  readonly requestId: string
}

/** How a job stands after a score. */
export interface JobProgress {
  readonly status: EvalJobStatus
  readonly scoreCount: number
  readonly aggregateScore: number | undefined
  readonly verdict: Verdict | undefined
}

/**
 * Work of eval jobs, leased to workers (model-api.md, "Eval work item"). The rows in PostgreSQL are the truth, so any
 * number of processes may lease out of one job. `tenant` is the attested caller's; undefined (the master key): any.
 */
export class EvalLeaseManager extends Context.Service<
  EvalLeaseManager,
  {
    /**
     * Leases up to `batchSize` items for the visibility timeout. No item is in two leases at once. Undefined when nothing
     * is available, or the job is not there for the caller.
     */
    readonly pull: (
      tenant: string | undefined,
      jobId: string,
      workerId: string,
      batchSize: number
    ) => Effect.Effect<Lease | undefined, Unavailable>
    /**
     * Ingests a score, idempotent on job, test case and scorer: the first one counts. The score that leaves no expected
     * test case without one decides the job: aggregate, verdict, provenance and event are written with it, once. Fails
     * with `resource_not_found` for an absent job or test case, `invalid_state` for a job that failed or was cancelled.
     */
    readonly score: (
      tenant: string | undefined,
      score: NewScore
    ) => Effect.Effect<JobProgress, InvalidRequest | NotFound | Unavailable>
  }
>()("sluice/evals/EvalLeaseManager") {}
