import { Context, type Effect } from "effect"
import type { NotFound, Unavailable, ValidationFailed } from "#domain/errors.ts"
import type { EvalJob, EvalJobStatus, EvalScore } from "#domain/evals.ts"
import type { RowScope } from "#domain/principal.ts"
import type { RowOwner } from "#domain/row-owner.ts"

/** What an eval job is made of. */
export interface NewEvalJob {
  readonly owner: RowOwner
  /** Which rows of the owner's tenant its maker sees: suites and datasets outside are as if they were not there. */
  readonly scope: RowScope & { readonly tenant: string }
  readonly suiteId: string
  /** Undefined: the catalog's head. */
  readonly suiteVersion: number | undefined
  readonly modelAssetId: string | null
  readonly modelVersion: string | null
  readonly judgeModelVersion: string | null
  /**
   * Each names a version of a dataset: `<asset id>` (its head), `<asset id>@<version>`, a content hash, or a table
   * snapshot that the dataset's content names in `table_ref.snapshot_ids`.
   */
  readonly snapshotIds: ReadonlyArray<string>
  readonly seed: number | null
  readonly actor: string
}

/** Eval jobs and their results (management-api.md, "eval_job"). A job outside the scope is absent. */
export class EvalJobs extends Context.Service<
  EvalJobs,
  {
    /**
     * The job, its expected test cases and its run in one transaction: nothing is left of it when the workflow engine
     * fails. Fails with `invalid_value` for a suite, version or snapshot that is not there: the operation has no 404.
     */
    readonly create: (job: NewEvalJob) => Effect.Effect<EvalJob, Unavailable | ValidationFailed>
    /** Newest first, with the total of what the filter matches. */
    readonly list: (query: {
      readonly scope: RowScope & { readonly tenant: string }
      readonly status: EvalJobStatus | undefined
      readonly limit: number
      readonly offset: number
    }) => Effect.Effect<{ readonly jobs: ReadonlyArray<EvalJob>; readonly total: number }, Unavailable>
    /** An undefined tenant in the scope asks all of them. */
    readonly find: (scope: RowScope, id: string) => Effect.Effect<EvalJob, NotFound | Unavailable>
    /** Scores in the order of test case and scorer. */
    readonly scores: (
      job: EvalJob,
      page: { readonly limit: number; readonly offset: number }
    ) => Effect.Effect<ReadonlyArray<EvalScore>, Unavailable>
    /** Leaves the audit entry of somebody reading another tenant's list, in that tenant's chain. */
    readonly auditOverride: (tenant: string, actor: string, callerTenant: string) => Effect.Effect<void, Unavailable>
  }
>()("sluice/evals/EvalJobs") {}
