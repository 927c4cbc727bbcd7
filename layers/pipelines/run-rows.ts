import type { Json, JsonObject } from "#domain/json.ts"
import type { RunError, RunStatus } from "#domain/pipelines/runs.ts"
import type { PipelineRun, PipelineRunDetails } from "#services/pipelines/PipelineRuns.ts"

export interface RunRow {
  readonly id: string
  readonly tenant: string
  readonly organization_id: string
  readonly definition_id: string
  readonly definition_version: number
  readonly workflow_type: string
  readonly engine_workflow_id: string
  readonly engine_namespace: string
  readonly status: RunStatus
  readonly error: string | null
  readonly created_by: string
  readonly created_at: Date
  readonly updated_at: Date
  readonly finished_at: Date | null
}

export interface RunDetailsRow extends RunRow {
  readonly inputs: string
  readonly outputs: string | null
}

export const runColumns = `id, tenant, organization_id, definition_id, definition_version, workflow_type,
  engine_workflow_id, engine_namespace, status, error, created_by, created_at, updated_at, finished_at`

export const runOf = (row: RunRow): PipelineRun => ({
  id: row.id,
  tenant: row.tenant,
  organizationId: row.organization_id,
  definitionId: row.definition_id,
  definitionVersion: row.definition_version,
  workflowType: row.workflow_type,
  engineWorkflowId: row.engine_workflow_id,
  engineNamespace: row.engine_namespace,
  status: row.status,
  createdBy: row.created_by,
  createdAt: row.created_at.getTime(),
  updatedAt: row.updated_at.getTime(),
  finishedAt: row.finished_at?.getTime() ?? null,
  error: row.error === null ? null : (JSON.parse(row.error) as RunError)
})

export const runDetailsOf = (row: RunDetailsRow): PipelineRunDetails => ({
  ...runOf(row),
  inputs: JSON.parse(row.inputs) as JsonObject,
  outputs: row.outputs === null ? null : (JSON.parse(row.outputs) as Json)
})
