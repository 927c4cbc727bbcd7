import { Clock, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { uuidv7 } from "#domain/ids.ts"
import { EvalRunStarter } from "#services/evals/EvalRunStarter.ts"
import { makeAudit } from "#services/provenance/audit.ts"
import type { Provenance } from "#services/provenance/Provenance.ts"
import { Tenants } from "#services/tenants/Tenants.ts"

/** Runs without an engine: workers pull what is to be done, and the deciding score ends the run. */
export const layer: Layer.Layer<EvalRunStarter, never, SqlClient.SqlClient | Provenance | Tenants> = Layer.effect(
  EvalRunStarter,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const tenants = yield* Tenants
    const audit = yield* makeAudit
    const clock = yield* Clock.Clock
    const tableOf = (tenant: string) =>
      Effect.map(tenants.schemaOf(tenant), (schema) => sql.literal(`${schema}.eval_runs`))

    return EvalRunStarter.of({
      start: Effect.fn("EvalRunStarter.start")(function* (run) {
        const runs = yield* tableOf(run.tenant)
        const id = uuidv7(clock.currentTimeMillisUnsafe())
        yield* sql`INSERT INTO ${runs} (id, job_id, status, started_at)
          VALUES (${id}, ${run.evalJobId}, 'accepted', ${new Date(run.startedAt)})`
        yield* audit({
          tenant: run.tenant,
          organizationId: run.organizationId,
          action: "pipeline.run.start",
          actor: run.actor,
          resourceType: "pipeline_run",
          resourceId: id,
          payload: { ...run.inputs, eval_job_id: run.evalJobId, run_id: id }
        })
        return id
      }),
      running: Effect.fnUntraced(function* (tenant, runId) {
        const runs = yield* tableOf(tenant)
        yield* sql`UPDATE ${runs} SET status = 'running' WHERE id = ${runId} AND status = 'accepted'`
      }),
      decided: Effect.fnUntraced(function* (tenant, runId, decision) {
        const runs = yield* tableOf(tenant)
        yield* sql`UPDATE ${runs} SET status = 'completed', ended_at = ${new Date(decision.at)} WHERE id = ${runId}`
        yield* audit({
          tenant,
          organizationId: decision.organizationId,
          action: "pipeline.run.completed",
          actor: "gateway",
          resourceType: "pipeline_run",
          resourceId: runId,
          payload: {
            aggregate_score: decision.aggregateScore,
            eval_job_id: decision.evalJobId,
            run_id: runId,
            verdict: decision.verdict
          }
        })
      }),
      statuses: Effect.fnUntraced(function* (tenant, runIds) {
        if (runIds.length === 0) return new Map()
        const runs = yield* tableOf(tenant)
        const rows = yield* sql<{ id: string; status: string }>`SELECT id, status FROM ${runs}
          WHERE id IN ${sql.in(runIds)}`
        return new Map(rows.map(({ id, status }) => [id, status]))
      })
    })
  })
)
