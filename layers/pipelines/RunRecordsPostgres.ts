import { Clock, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import type { CallbackEventType } from "#domain/events.ts"
import type { JsonObject } from "#domain/json.ts"
import type { PipelineDefinition } from "#domain/pipelines/definition.ts"
import { isFinal, type RunStatus } from "#domain/pipelines/runs.ts"
import { principalOf } from "#layers/pipelines/stored-principal.ts"
import { Outbox } from "#services/callbacks/Outbox.ts"
import { RunRecords } from "#services/pipelines/RunRecords.ts"
import { Tenants } from "#services/tenants/Tenants.ts"

interface LoadedRow {
  readonly definition: string
  readonly inputs: string
  readonly principal: string
  readonly created_at: Date
}

interface ChangedRow {
  readonly organization_id: string
  readonly definition_id: string
  readonly definition_version: number
}

/** `pipeline.run.started` comes with the audit entry of the creation. */
const eventOf: { readonly [S in RunStatus]?: CallbackEventType } = {
  awaiting_review: "pipeline.run.awaiting_review",
  completed: "pipeline.run.completed",
  failed: "pipeline.run.failed"
}

/** Runs as rows of their tenant's schema. */
export const layer: Layer.Layer<RunRecords, never, SqlClient.SqlClient | Tenants | Outbox> = Layer.effect(
  RunRecords,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const tenants = yield* Tenants
    const outbox = yield* Outbox
    const clock = yield* Clock.Clock
    return RunRecords.of({
      load: Effect.fnUntraced(function* (key) {
        const schema = yield* tenants.schemaOf(key.tenant)
        const [row] = yield* sql.unsafe<LoadedRow>(
          `SELECT definition, inputs, principal, created_at FROM ${schema}.pipeline_runs WHERE id = $1 AND tenant = $2`,
          [key.runId, key.tenant]
        )
        return row === undefined
          ? undefined
          : {
              definition: JSON.parse(row.definition) as PipelineDefinition,
              inputs: JSON.parse(row.inputs) as JsonObject,
              principal: principalOf(row.principal),
              createdAt: row.created_at.getTime()
            }
      }),
      transition: Effect.fnUntraced(function* (key, { error, outputs, status, step }) {
        const schema = yield* tenants.schemaOf(key.tenant)
        const now = clock.currentTimeMillisUnsafe()
        const [row] = yield* sql.unsafe<ChangedRow>(
          `UPDATE ${schema}.pipeline_runs SET status = $3, updated_at = $4, finished_at = $5, outputs = $6, error = $7
          WHERE id = $1 AND tenant = $2 AND finished_at IS NULL
          RETURNING organization_id, definition_id, definition_version`,
          [
            key.runId,
            key.tenant,
            status,
            new Date(now),
            isFinal(status) ? new Date(now) : null,
            outputs === undefined ? null : JSON.stringify(outputs),
            error === undefined ? null : JSON.stringify(error)
          ]
        )
        if (row === undefined) return false
        const type = eventOf[status]
        if (type !== undefined) {
          const organizationId = row.organization_id === "" ? null : row.organization_id
          yield* outbox.append([
            {
              type,
              tenant: key.tenant,
              organizationId,
              occurredAt: now,
              data: {
                run_id: key.runId,
                organization_id: organizationId,
                status,
                definition_id: row.definition_id,
                definition_version: row.definition_version,
                ...(step === undefined ? {} : { step_id: step }),
                ...(error === undefined ? {} : { error: { ...error } })
              }
            }
          ])
        }
        return true
      })
    })
  })
)
