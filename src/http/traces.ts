import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { ModelCaller } from "#api/access.ts"
import { Api } from "#api/Api.ts"
import { notFound } from "#domain/errors.ts"
import { instantText } from "#domain/instants.ts"
import { publicTenant, tenantOf } from "#domain/principal.ts"
import { type Session, type TraceEvent, type TracePage, Traces } from "#services/provenance/Traces.ts"
import { Tenants } from "#services/tenants/Tenants.ts"

const defaultLimit = 100
const maxLimit = 500

const clamped = (text: string | undefined, fallback: number, least: number, most: number): number => {
  const value = text === undefined || text.trim() === "" ? Number.NaN : Number(text)
  return Number.isNaN(value) ? fallback : Math.trunc(Math.min(Math.max(value, least), most))
}

const pageOf = (query: { readonly limit?: string; readonly offset?: string }): TracePage => ({
  limit: clamped(query.limit, defaultLimit, 1, maxLimit),
  offset: clamped(query.offset, 0, 0, Number.MAX_SAFE_INTEGER)
})

const shown = (event: TraceEvent) => ({
  id: event.id,
  sequence_number: event.sequenceNumber,
  action: event.action,
  tenant_id: event.tenant,
  payload: event.payload,
  payload_hash: event.payloadHash,
  created_at: instantText(event.createdAt),
  request_id: event.requestId
})

const shownSession = (session: Session) => ({
  id: session.requestId,
  request_id: session.requestId,
  tenant_id: session.tenant,
  started_at: instantText(session.startedAt),
  ended_at: instantText(session.endedAt),
  event_count: session.events,
  actions: session.actions,
  first_sequence_number: session.firstSequenceNumber,
  last_sequence_number: session.lastSequenceNumber
})

export const TraceHandlers = HttpApiBuilder.group(
  Api,
  "trace",
  Effect.fn(function* (handlers) {
    const traces = yield* Traces
    const tenants = yield* Tenants

    /** The attested tenant; undefined where it has no schema, and so no chain. */
    const attested = Effect.map(ModelCaller, (caller) => {
      const tenant = tenantOf(caller)
      return tenant === publicTenant || tenants.dormant || tenants.slugs.includes(tenant) ? tenant : undefined
    })

    return handlers.handleAll({
      list: Effect.fnUntraced(function* ({ query }) {
        const tenant = yield* attested
        const found = tenant === undefined ? [] : yield* traces.list(tenant, pageOf(query))
        return { object: "list" as const, data: found.map(shown) }
      }),
      find: Effect.fnUntraced(function* ({ params }) {
        const tenant = yield* attested
        if (tenant === undefined) return yield* notFound("trace")
        return shown(yield* traces.find(tenant, params.id))
      }),
      sessions: Effect.fnUntraced(function* ({ query }) {
        const tenant = yield* attested
        const found = tenant === undefined ? [] : yield* traces.sessions(tenant, pageOf(query))
        return { object: "list" as const, data: found.map(shownSession) }
      })
    })
  })
)
