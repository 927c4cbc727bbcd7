import * as PgTypes from "@effect/sql-pg/PgTypes"
import { Effect, Layer, Result } from "effect"
import { SqlClient } from "effect/sql"
import { uuidv7 } from "#domain/ids.ts"
import { Outbox, type OutboxEvent } from "#services/callbacks/Outbox.ts"

/** Told when deliveries were appended; the payload is empty. */
export const DELIVERIES_CHANNEL = "callback_deliveries"

const bodyOf = (id: string, event: OutboxEvent): string =>
  JSON.stringify({
    id,
    type: event.type,
    timestamp: new Date(event.occurredAt).toISOString(),
    tenant: event.tenant ?? null,
    data: event.data
  })

// The signal goes out with the commit, and only when there is something to deliver.
const appendStatement = `WITH owed AS (
  INSERT INTO public.callback_deliveries (callback_id, event_id, body, next_attempt_at)
  SELECT c.id, e.id, e.body, e.occurred_at
  FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[])
    AS e (id, type, tenant, organization_id, body, occurred_at)
  JOIN public.callbacks c ON (c.events = '{}' OR e.type = ANY (c.events))
    AND (c.whole_instance OR e.tenant IS NULL
      OR (c.tenant = e.tenant AND (c.organization_id = '' OR c.organization_id = e.organization_id)))
  RETURNING 1
) SELECT pg_notify('${DELIVERIES_CHANNEL}', '') WHERE EXISTS (SELECT FROM owed)`

/** The outbox in `public`: one row an event and callback that wants it, found in the same statement. */
export const layer: Layer.Layer<Outbox, never, SqlClient.SqlClient> = Layer.effect(
  Outbox,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const array = (type: "uuid" | "text" | "timestamptz", values: ReadonlyArray<unknown>) =>
      Result.getOrThrow(PgTypes.array(values, PgTypes.OID[type]))
    return Outbox.of({
      append: (events) => {
        if (events.length === 0) return Effect.void
        const rows = events.map((event) => {
          const id = uuidv7(event.occurredAt)
          // PostgreSQL holds no NUL; JSON writes one as an escape, which is text like any other.
          return { ...event, id, body: bodyOf(id, event) }
        })
        return Effect.asVoid(
          sql.unsafe(appendStatement, [
            array(
              "uuid",
              rows.map(({ id }) => id)
            ),
            array(
              "text",
              rows.map(({ type }) => type)
            ),
            array(
              "text",
              rows.map(({ tenant }) => tenant ?? null)
            ),
            array(
              "text",
              rows.map(({ organizationId }) => organizationId)
            ),
            array(
              "text",
              rows.map(({ body }) => body)
            ),
            array(
              "timestamptz",
              rows.map(({ occurredAt }) => occurredAt)
            )
          ])
        )
      }
    })
  })
)
