import { Context, type Effect } from "effect"
import type { InvalidRequest, NotFound, PermissionDenied, Unavailable, ValidationFailed } from "#domain/errors.ts"
import type { Json, JsonObject } from "#domain/json.ts"
import type { HistoryEvent, RunError, RunStatus } from "#domain/pipelines/runs.ts"
import type { ManagementPrincipal } from "#domain/principal.ts"

/** Management-api.md, "Pipeline run". Times are Unix milliseconds. */
export interface PipelineRun {
  readonly id: string
  readonly tenant: string
  readonly organizationId: string
  readonly definitionId: string
  readonly definitionVersion: number
  readonly workflowType: string
  readonly engineWorkflowId: string
  readonly engineNamespace: string
  readonly status: RunStatus
  readonly createdBy: string
  readonly createdAt: number
  readonly updatedAt: number
  readonly finishedAt: number | null
  readonly error: RunError | null
}

/** A run with what went in and came out. */
export interface PipelineRunDetails extends PipelineRun {
  readonly inputs: JsonObject
  readonly outputs: Json
}

/** A review that waits for its decision. */
export interface PendingReview {
  readonly step: string
  readonly title: string
  readonly details: Json
  readonly reviewerRole: string
  readonly requestedAt: number
  readonly deadline: number
}

export interface AwaitingRun {
  readonly run: PipelineRun
  readonly reviews: ReadonlyArray<PendingReview>
}

export interface RunFilter {
  /** Another tenant's, where the caller may. */
  readonly tenant: string | undefined
  readonly status: string | undefined
  readonly definitionId: string | undefined
  readonly limit: number
  readonly offset: number
}

export interface RunDraft {
  readonly definitionId: string
  /** Undefined: the newest. */
  readonly definitionVersion: number | undefined
  readonly inputs: JsonObject
}

/**
 * Runs of pipelines (management-api.md, "pipeline"). Each caller sees the runs of its tenant, an organization's
 * administrator those of its organization; whoever may name another tenant is audited when doing so.
 */
export class PipelineRuns extends Context.Service<
  PipelineRuns,
  {
    /** Row, provenance entry and start are one transaction: when the engine fails, nothing is left. */
    readonly create: (
      caller: ManagementPrincipal,
      draft: RunDraft
    ) => Effect.Effect<PipelineRun, ValidationFailed | InvalidRequest | NotFound | PermissionDenied | Unavailable>
    readonly list: (
      caller: ManagementPrincipal,
      filter: RunFilter
    ) => Effect.Effect<ReadonlyArray<PipelineRun>, PermissionDenied | Unavailable>
    readonly awaitingReview: (
      caller: ManagementPrincipal,
      tenant: string | undefined
    ) => Effect.Effect<ReadonlyArray<AwaitingRun>, PermissionDenied | Unavailable>
    readonly find: (
      caller: ManagementPrincipal,
      runId: string
    ) => Effect.Effect<PipelineRunDetails, NotFound | PermissionDenied | Unavailable>
    readonly history: (
      caller: ManagementPrincipal,
      runId: string,
      offset: number,
      limit: number
    ) => Effect.Effect<ReadonlyArray<HistoryEvent>, NotFound | PermissionDenied | Unavailable>
    readonly signal: (
      caller: ManagementPrincipal,
      runId: string,
      signal: { readonly name: string; readonly payload: JsonObject }
    ) => Effect.Effect<void, ValidationFailed | InvalidRequest | NotFound | PermissionDenied | Unavailable>
    readonly cancel: (
      caller: ManagementPrincipal,
      runId: string
    ) => Effect.Effect<void, NotFound | PermissionDenied | Unavailable>
    readonly terminate: (
      caller: ManagementPrincipal,
      runId: string,
      reason: string
    ) => Effect.Effect<void, NotFound | PermissionDenied | Unavailable>
  }
>()("sluice/pipelines/PipelineRuns") {}
