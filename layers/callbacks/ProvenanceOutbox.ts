import { Effect, Layer, Option } from "effect"
import { SqlClient } from "effect/sql"
import { eventOfAction } from "#domain/events.ts"
import { Outbox, type OutboxEvent } from "#services/callbacks/Outbox.ts"
import { Provenance, type ProvenanceEntry } from "#services/provenance/Provenance.ts"

const eventOf = (tenant: string, entry: ProvenanceEntry): OutboxEvent | undefined => {
  const type = eventOfAction(entry.action)
  if (type === undefined) return undefined
  const named = entry.payload["organization_id"]
  const organizationId = entry.organizationId ?? (typeof named === "string" ? named : null)
  return {
    type,
    tenant,
    organizationId,
    occurredAt: entry.createdAt,
    data: {
      ...entry.payload,
      actor: entry.actor,
      organization_id: organizationId,
      request_id: entry.requestId,
      resource_id: entry.resourceId,
      resource_type: entry.resourceType
    }
  }
}

/**
 * `Provenance` over another one, that also tells callbacks: an entry whose action is an event becomes one, in the same
 * transaction. So whoever audits an action need not think of callbacks, and neither can be forgotten alone.
 */
export const layer: Layer.Layer<Provenance, never, Provenance | Outbox | SqlClient.SqlClient> = Layer.effect(
  Provenance,
  Effect.gen(function* () {
    const chain = yield* Provenance
    const outbox = yield* Outbox
    const sql = yield* SqlClient.SqlClient
    return Provenance.of({
      ...chain,
      append: (tenant, entries) => {
        const events = entries.map((entry) => eventOf(tenant, entry)).filter((event) => event !== undefined)
        if (events.length === 0) return chain.append(tenant, entries)
        // The chain last: its head stays locked until the commit.
        const both = Effect.andThen(outbox.append(events), chain.append(tenant, entries))
        return Effect.flatMap(Effect.serviceOption(sql.transactionService), (transaction) =>
          Option.isSome(transaction) ? both : sql.withTransaction(both)
        )
      }
    })
  })
)
