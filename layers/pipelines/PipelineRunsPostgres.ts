import * as PgTypes from "@effect/sql-pg/PgTypes"
import { Clock, Effect, Layer, Result } from "effect"
import { SqlClient } from "effect/sql"
import {
  forbidden,
  InvalidRequest,
  invalidValue,
  missingField,
  notFound,
  PermissionDenied,
  ValidationFailed
} from "#domain/errors.ts"
import { isUuid, uuidv7 } from "#domain/ids.ts"
import type { Json } from "#domain/json.ts"
import { isFinal, reviewSignal, runStatuses } from "#domain/pipelines/runs.ts"
import { actorOf, isInstanceAdmin, type ManagementPrincipal, publicTenant, rowScopeOf } from "#domain/principal.ts"
import { rowOwnerOf } from "#domain/row-owner.ts"
import { type RunDetailsRow, runColumns, runDetailsOf, runOf, type RunRow } from "#layers/pipelines/run-rows.ts"
import { principalText } from "#layers/pipelines/stored-principal.ts"
import { Expressions } from "#services/pipelines/Expressions.ts"
import { PipelineDefinitions } from "#services/pipelines/PipelineDefinitions.ts"
import { type PendingReview, PipelineRuns } from "#services/pipelines/PipelineRuns.ts"
import { WorkflowEngine } from "#services/pipelines/WorkflowEngine.ts"
import { makeAudit } from "#services/provenance/audit.ts"
import type { Provenance } from "#services/provenance/Provenance.ts"
import { orUnavailable } from "#services/storage/outage.ts"
import { isProvisioned, Tenants } from "#services/tenants/Tenants.ts"

const maxAwaiting = 500
const maxReason = 4096
const resourceType = "pipeline_run"

const absent = notFound("pipeline run")

const overrideForbidden = new PermissionDenied({
  code: "tenant_override_forbidden",
  message: "This caller may not name another tenant."
})

const wrongInputs = new InvalidRequest({
  code: "invalid_state",
  message: "The inputs could not be checked against the definition's schema.",
  param: "initial_inputs"
})

interface ReviewRow {
  readonly run_id: string
  readonly step_id: string
  readonly title: string
  readonly details: string
  readonly reviewer_role: string
  readonly requested_at: Date
  readonly deadline: Date
}

const reviewOf = (row: ReviewRow): PendingReview => ({
  step: row.step_id,
  title: row.title,
  details: JSON.parse(row.details) as Json,
  reviewerRole: row.reviewer_role,
  requestedAt: row.requested_at.getTime(),
  deadline: row.deadline.getTime()
})

/** Runs as rows of their tenant's schema, over a workflow engine. */
export const layer: Layer.Layer<
  PipelineRuns,
  never,
  SqlClient.SqlClient | Tenants | Provenance | PipelineDefinitions | Expressions | WorkflowEngine
> = Layer.effect(
  PipelineRuns,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const tenants = yield* Tenants
    const definitions = yield* PipelineDefinitions
    const expressions = yield* Expressions
    const engine = yield* WorkflowEngine
    const clock = yield* Clock.Clock
    const audit = yield* makeAudit
    const now = () => clock.currentTimeMillisUnsafe()

    const ownerOf = (caller: ManagementPrincipal) => {
      const owner = rowOwnerOf(caller)
      return owner !== undefined && isProvisioned(tenants, owner.tenant)
        ? Effect.succeed(owner)
        : Effect.fail(forbidden())
    }

    /** Of which tenant and organization a caller sees runs where it names none or that tenant. */
    const seen = Effect.fnUntraced(function* (
      caller: ManagementPrincipal,
      tenant: string | undefined,
      operation: string
    ) {
      const owner = yield* ownerOf(caller)
      const { organizationId } = rowScopeOf(caller)
      if (tenant === undefined || tenant === owner.tenant) return { tenant: owner.tenant, organizationId }
      const may =
        isInstanceAdmin(caller) || (caller._tag === "Administrator" && caller.entitlements.has("cross_tenant_admin"))
      if (!may) return yield* overrideForbidden
      if (!isProvisioned(tenants, tenant)) return undefined
      yield* audit({
        tenant,
        action: "pipeline_run.tenant_override",
        actor: actorOf(caller),
        resourceType,
        resourceId: "",
        payload: { operation, tenant, caller_tenant: owner.tenant }
      })
      return { tenant, organizationId: undefined }
    })

    const search = Effect.fnUntraced(function* (
      filter: {
        readonly tenant: string
        readonly organizationId: string | undefined
        readonly status?: string | undefined
        readonly definitionId?: string | undefined
      },
      limit: number,
      offset: number
    ) {
      if (filter.status !== undefined && !runStatuses.some((known) => known === filter.status)) return []
      if (filter.definitionId !== undefined && !isUuid(filter.definitionId)) return []
      const schema = yield* tenants.schemaOf(filter.tenant)
      const rows = yield* sql.unsafe<RunRow>(
        `SELECT ${runColumns} FROM ${schema}.pipeline_runs WHERE tenant = $1
          AND ($2::text IS NULL OR organization_id = $2::text) AND ($3::text IS NULL OR status = $3::text)
          AND ($4::uuid IS NULL OR definition_id = $4::uuid)
        ORDER BY created_at DESC, id DESC LIMIT $5::integer OFFSET $6::integer`,
        [
          filter.tenant,
          filter.organizationId ?? null,
          filter.status ?? null,
          filter.definitionId ?? null,
          limit,
          offset
        ]
      )
      return rows.map(runOf)
    })

    /** An instance's administrator need not say whose run it is. */
    const locate = Effect.fnUntraced(function* (caller: ManagementPrincipal, runId: string) {
      const owner = yield* ownerOf(caller)
      if (!isUuid(runId)) return yield* absent
      const scope = rowScopeOf(caller)
      const everywhere = scope.tenant === undefined
      const places = everywhere && !tenants.dormant ? [publicTenant, ...tenants.slugs] : [owner.tenant]
      for (const tenant of places) {
        const schema = yield* tenants.schemaOf(tenant)
        const [row] = yield* orUnavailable(
          sql.unsafe<RunDetailsRow>(
            `SELECT ${runColumns}, inputs, outputs FROM ${schema}.pipeline_runs
            WHERE id = $1 AND ($2::text IS NULL OR tenant = $2::text) AND ($3::text IS NULL OR organization_id = $3::text)`,
            [runId, everywhere ? null : owner.tenant, scope.organizationId ?? null]
          )
        )
        if (row !== undefined) return runDetailsOf(row)
      }
      return yield* absent
    })

    const engineReady = Effect.suspend(() => (engine.refusal === undefined ? Effect.void : Effect.fail(engine.refusal)))

    /** What a person does to a run, with its audit entry, in one transaction. */
    const acted = <E, R>(
      caller: ManagementPrincipal,
      run: { readonly id: string; readonly tenant: string; readonly organizationId: string },
      action: string,
      payload: { readonly [name: string]: Json },
      effect: Effect.Effect<void, E, R>
    ) =>
      orUnavailable(
        sql.withTransaction(
          Effect.andThen(
            effect,
            audit({
              tenant: run.tenant,
              action,
              actor: actorOf(caller),
              resourceType,
              resourceId: run.id,
              organizationId: run.organizationId,
              payload
            })
          )
        )
      )

    return PipelineRuns.of({
      create: Effect.fn("PipelineRuns.create")(function* (caller, draft) {
        yield* engineReady
        const owner = yield* ownerOf(caller)
        const scope = { tenant: owner.tenant, organizationId: rowScopeOf(caller).organizationId }
        const { definition, registered } = yield* definitions.load(scope, draft.definitionId, draft.definitionVersion)
        const violation = yield* Effect.catchTag(
          expressions.violation(definition.inputs, draft.inputs),
          "ExpressionFailed",
          () => Effect.fail(wrongInputs)
        )
        if (violation !== undefined) {
          const param = violation.path === "" ? "initial_inputs" : `initial_inputs.${violation.path}`
          return yield* invalidValue(param, `'${param}' ${violation.message}.`)
        }
        const at = now()
        const id = uuidv7(at)
        const actor = actorOf(caller)
        const key = { tenant: owner.tenant, runId: id }
        const schema = yield* tenants.schemaOf(owner.tenant)
        const write = Effect.gen(function* () {
          const [row] = yield* sql.unsafe<RunRow>(
            `INSERT INTO ${schema}.pipeline_runs (id, tenant, organization_id, definition_id, definition_version,
              workflow_type, engine_workflow_id, engine_namespace, status, definition, inputs, principal, created_by,
              created_at, updated_at)
            VALUES ($1, $2, $3, $4, $5::integer, $6, $7, $8, 'accepted', $9, $10, $11, $12, $13, $13)
            RETURNING ${runColumns}`,
            [
              id,
              owner.tenant,
              owner.organizationId,
              registered.assetId,
              registered.version,
              registered.workflowType,
              engine.workflowId(id),
              engine.namespace,
              JSON.stringify(definition),
              JSON.stringify(draft.inputs),
              principalText(caller),
              actor,
              new Date(at)
            ]
          )
          yield* engine.start(key)
          yield* audit({
            tenant: owner.tenant,
            action: "pipeline.run.start",
            actor,
            resourceType,
            resourceId: id,
            organizationId: owner.organizationId,
            payload: {
              run_id: id,
              definition_id: registered.assetId,
              definition_version: registered.version,
              workflow_type: registered.workflowType,
              engine_workflow_id: engine.workflowId(id)
            }
          })
          return runOf(row!)
        })
        return yield* orUnavailable(Effect.onError(sql.withTransaction(write), () => engine.discard(key)))
      }),

      list: Effect.fn("PipelineRuns.list")(function* (caller, { definitionId, limit, offset, status, tenant }) {
        return yield* orUnavailable(
          Effect.gen(function* () {
            const scope = yield* seen(caller, tenant, "runs")
            return scope === undefined ? [] : yield* search({ ...scope, status, definitionId }, limit, offset)
          })
        )
      }),

      awaitingReview: Effect.fn("PipelineRuns.awaitingReview")(function* (caller, tenant) {
        return yield* orUnavailable(
          Effect.gen(function* () {
            const scope = yield* seen(caller, tenant, "hitl/pending")
            if (scope === undefined) return []
            const runs = yield* search({ ...scope, status: "awaiting_review" }, maxAwaiting, 0)
            if (runs.length === 0) return []
            const schema = yield* tenants.schemaOf(scope.tenant)
            const reviews = yield* sql.unsafe<ReviewRow>(
              `SELECT run_id, step_id, title, details, reviewer_role, requested_at, deadline FROM ${schema}.pipeline_reviews
              WHERE run_id = ANY ($1::uuid[]) AND decided_at IS NULL ORDER BY requested_at, step_id`,
              [
                Result.getOrThrow(
                  PgTypes.array(
                    runs.map(({ id }) => id),
                    PgTypes.OID["uuid"]
                  )
                )
              ]
            )
            return runs.map((run) => ({
              run,
              reviews: reviews.filter((row) => row.run_id === run.id).map(reviewOf)
            }))
          })
        )
      }),

      find: Effect.fnUntraced(function* (caller, runId) {
        const run = yield* locate(caller, runId)
        if (isFinal(run.status) || run.engineNamespace !== engine.namespace) return run
        return (yield* engine.refresh({ tenant: run.tenant, runId })) ? yield* locate(caller, runId) : run
      }),

      history: Effect.fn("PipelineRuns.history")(function* (caller, runId, offset, limit) {
        yield* engineReady
        const run = yield* locate(caller, runId)
        return yield* engine.history({ tenant: run.tenant, runId }, offset, limit)
      }),

      signal: Effect.fn("PipelineRuns.signal")(function* (caller, runId, { name, payload }) {
        yield* engineReady
        const run = yield* locate(caller, runId)
        if (name !== reviewSignal) {
          return yield* invalidValue("signal_name", `'signal_name' must be ${reviewSignal}.`)
        }
        const { approved, reason = "", step_id: step } = payload
        if (approved === undefined) return yield* missingField("payload.approved")
        if (typeof approved !== "boolean") {
          return yield* invalidValue("payload.approved", "'payload.approved' must be true or false.")
        }
        if (typeof reason !== "string") return yield* invalidValue("payload.reason", "'payload.reason' must be a text.")
        if (reason.length > maxReason) {
          return yield* new ValidationFailed({
            code: "value_too_long",
            message: `'payload.reason' has at most ${maxReason} characters.`,
            param: "payload.reason"
          })
        }
        if (step !== undefined && (typeof step !== "string" || step.length > 256)) {
          return yield* invalidValue("payload.step_id", "'payload.step_id' must be a step's id.")
        }
        const reviewer = actorOf(caller)
        yield* acted(
          caller,
          run,
          "pipeline.run.signal",
          { signal_name: name, approved, ...(step === undefined ? {} : { step_id: step }) },
          engine.decide({ tenant: run.tenant, runId }, { step, approved, reason, reviewer })
        )
      }),

      cancel: Effect.fn("PipelineRuns.cancel")(function* (caller, runId) {
        yield* engineReady
        const run = yield* locate(caller, runId)
        yield* acted(
          caller,
          run,
          "pipeline.run.cancel",
          {},
          engine.cancel({ tenant: run.tenant, runId }, actorOf(caller))
        )
      }),

      terminate: Effect.fn("PipelineRuns.terminate")(function* (caller, runId, reason) {
        yield* engineReady
        const run = yield* locate(caller, runId)
        const key = { tenant: run.tenant, runId }
        yield* acted(caller, run, "pipeline.run.terminate", { reason }, engine.terminate(key, actorOf(caller), reason))
      })
    })
  })
)
