import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import type { DeveloperAuditEntry } from "#domain/developer.ts"
import type { Json } from "#domain/json.ts"
import { actorOf, type DeveloperPrincipal } from "#domain/principal.ts"
import { DeveloperAudit } from "#services/developer/DeveloperAudit.ts"
import { orUnavailable } from "#services/storage/outage.ts"
import { Tenants } from "#services/tenants/Tenants.ts"

interface EntryRow {
  readonly id: string
  readonly action: string
  readonly actor: string
  readonly resource_type: string
  readonly resource_id: string
  readonly request_id: string | null
  readonly payload: Json
  readonly created_at: Date
}

const entryOf = (row: EntryRow): DeveloperAuditEntry => ({
  id: row.id,
  action: row.action,
  actor: row.actor,
  resourceType: row.resource_type,
  resourceId: row.resource_id,
  requestId: row.request_id,
  payload: row.payload,
  createdAt: row.created_at.getTime()
})

/** The chain of the developer's tenant, read through its indexes by actor and by resource; a discarded key stays one's own. */
export const layer: Layer.Layer<DeveloperAudit, never, SqlClient.SqlClient | Tenants> = Layer.effect(
  DeveloperAudit,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const tenants = yield* Tenants

    const list = Effect.fn("DeveloperAudit.list")(function* (
      developer: DeveloperPrincipal,
      page: number,
      pageSize: number
    ) {
      const entries = sql.literal(`${yield* tenants.schemaOf(developer.tenant)}.provenance_entries`)
      const offset = (page - 1) * pageSize
      const newest = sql`ORDER BY e.sequence_number DESC LIMIT ${offset + pageSize}::int8`
      const rows = yield* sql<EntryRow>`WITH found AS (
          (SELECT e.sequence_number FROM ${entries} e
            WHERE e.actor = ${actorOf(developer)} AND e.resource_type <> 'model_call' ${newest})
          UNION
          SELECT o.sequence_number FROM public.api_keys k CROSS JOIN LATERAL (
            SELECT e.sequence_number FROM ${entries} e
            WHERE e.resource_type = 'key' AND e.resource_type <> 'model_call' AND e.resource_id = k.id::text ${newest}
          ) o WHERE k.user_id = ${developer.userId} AND k.tenant = ${developer.tenant}
        ), page AS (
          SELECT sequence_number FROM found
          ORDER BY sequence_number DESC LIMIT ${pageSize}::int OFFSET ${offset}::int8
        )
        SELECT e.id, e.action, e.actor, e.resource_type, e.resource_id, e.request_id, e.payload, e.created_at
        FROM page p JOIN ${entries} e ON e.sequence_number = p.sequence_number
        ORDER BY e.sequence_number DESC`.pipe(orUnavailable)
      return rows.map(entryOf)
    })

    return DeveloperAudit.of({ list })
  })
)
