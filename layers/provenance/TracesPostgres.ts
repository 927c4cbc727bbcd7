import { Effect, Layer } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import { notFound } from "#domain/errors.ts"
import { isUuid } from "#domain/ids.ts"
import type { JsonObject } from "#domain/json.ts"
import { publicTenant } from "#domain/principal.ts"
import { type Session, type TraceEvent, type TracePage, Traces } from "#services/provenance/Traces.ts"
import { orUnavailable } from "#services/storage/outage.ts"
import { Tenants } from "#services/tenants/Tenants.ts"
import { UsageLedger } from "#services/usage/UsageLedger.ts"

interface EntryRow {
  readonly id: string
  readonly sequence_number: bigint
  readonly action: string
  readonly payload: JsonObject
  readonly payload_hash: string
  readonly request_id: string | null
  readonly created_at: Date
}

interface SessionRow {
  readonly request_id: string
  readonly started_at: Date
  readonly ended_at: Date
  readonly events: bigint
  readonly actions: ReadonlyArray<string>
  readonly first: bigint
  readonly last: bigint
}

const eventOf = (row: EntryRow, tenant: string): TraceEvent => ({
  id: row.id,
  sequenceNumber: Number(row.sequence_number),
  action: row.action,
  tenant,
  payload: row.payload,
  payloadHash: row.payload_hash,
  requestId: row.request_id,
  createdAt: row.created_at.getTime()
})

const sessionOf = (row: SessionRow, tenant: string): Session => ({
  requestId: row.request_id,
  tenant,
  startedAt: row.started_at.getTime(),
  endedAt: row.ended_at.getTime(),
  events: Number(row.events),
  actions: row.actions,
  firstSequenceNumber: Number(row.first),
  lastSequenceNumber: Number(row.last)
})

/** The moment in a UUIDv7. */
const instantOf = (id: string): Date => new Date(Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16))

/** Reads each tenant's chain. */
export const layer: Layer.Layer<Traces, never, SqlClient.SqlClient | Tenants | UsageLedger> = Layer.effect(
  Traces,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const tenants = yield* Tenants
    const usage = yield* UsageLedger

    const ownActor = (tenant: string, alias: string): Statement.Fragment => {
      if (!tenants.dormant) return sql`true`
      // Without tenants configured one chain holds everybody's entries, and only their keys tell them apart.
      const actor = sql.literal(`${alias}.actor`)
      const keyOf = (whose: Statement.Fragment) => sql`CASE WHEN ${actor} ~ '^key:[0-9a-f-]{36}$' THEN EXISTS (
        SELECT FROM public.api_keys k WHERE k.id = substr(${actor}, 5)::uuid AND ${whose}) ELSE false END`
      // What is nobody else's is the public scope's: also what a key did that is gone.
      return tenant === publicTenant
        ? sql`NOT ${keyOf(sql`k.tenant <> ${publicTenant}`)}`
        : keyOf(sql`k.tenant = ${tenant}`)
    }

    const traced = (tenant: string, alias: string): Statement.Fragment => {
      const action = sql.literal(`${alias}.action`)
      return sql`((${action} LIKE 'gen_ai.%' OR ${action} LIKE 'udf.%' OR ${action} = 'eval.promotion.decided')
        AND ${ownActor(tenant, alias)})`
    }

    const placeOf = (tenant: string) =>
      Effect.map(tenants.schemaOf(tenant), (schema) => ({
        entries: sql.literal(`${schema}.provenance_entries`),
        head: sql.literal(`${schema}.provenance_head`)
      }))

    /** What an offset beyond the chain asks for needs no walk along it. */
    const isBeyond = (head: Statement.Fragment, offset: number) =>
      Effect.map(
        sql<{ sequence_number: bigint }>`SELECT sequence_number FROM ${head}`,
        ([row]) => BigInt(offset) >= (row?.sequence_number ?? 0n)
      )

    const columns = sql.literal(
      "e.id, e.sequence_number, e.action, e.payload, e.payload_hash, e.request_id, e.created_at"
    )

    const list = Effect.fn("Traces.list")(function* (tenant: string, { limit, offset }: TracePage) {
      yield* usage.flush
      const { entries, head } = yield* placeOf(tenant)
      if (yield* orUnavailable(isBeyond(head, offset))) return []
      const rows = yield* sql<EntryRow>`SELECT ${columns} FROM ${entries} e WHERE ${traced(tenant, "e")}
        ORDER BY e.sequence_number DESC LIMIT ${limit} OFFSET ${String(offset)}::text::bigint`.pipe(orUnavailable)
      return rows.map((row) => eventOf(row, tenant))
    })

    const find = Effect.fn("Traces.find")(function* (tenant: string, id: string) {
      if (!isUuid(id)) return yield* notFound("trace")
      yield* usage.flush
      const { entries } = yield* placeOf(tenant)
      const [row] = yield* sql<EntryRow>`SELECT ${columns} FROM ${entries} e
        WHERE e.created_at = ${instantOf(id)} AND e.id = ${id} AND ${traced(tenant, "e")}`.pipe(orUnavailable)
      return row === undefined ? yield* notFound("trace") : eventOf(row, tenant)
    })

    const sessions = Effect.fn("Traces.sessions")(function* (tenant: string, { limit, offset }: TracePage) {
      yield* usage.flush
      const { entries, head } = yield* placeOf(tenant)
      if (yield* orUnavailable(isBeyond(head, offset))) return []
      // A session starts where no earlier entry has its request id: so the walk stops with the page.
      const rows = yield* sql<SessionRow>`WITH starts AS (
          SELECT e.request_id, e.sequence_number FROM ${entries} e
          WHERE e.request_id IS NOT NULL AND ${traced(tenant, "e")} AND NOT EXISTS (
            SELECT FROM ${entries} b WHERE b.request_id = e.request_id AND b.sequence_number < e.sequence_number
              AND ${traced(tenant, "b")})
          ORDER BY e.sequence_number DESC LIMIT ${limit} OFFSET ${String(offset)}::text::bigint
        ) SELECT s.request_id, s.sequence_number AS first, o.* FROM starts s CROSS JOIN LATERAL (
          SELECT min(e.created_at) AS started_at, max(e.created_at) AS ended_at, count(*) AS events,
            array_agg(DISTINCT e.action) AS actions, max(e.sequence_number) AS last
          FROM ${entries} e WHERE e.request_id = s.request_id AND ${traced(tenant, "e")}
        ) AS o ORDER BY o.started_at DESC, s.sequence_number DESC`.pipe(orUnavailable)
      return rows.map((row) => sessionOf(row, tenant))
    })

    return Traces.of({ list, find, sessions })
  })
)
