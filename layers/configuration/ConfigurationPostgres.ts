import { Clock, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { invalidValue } from "#domain/errors.ts"
import type { Json } from "#domain/json.ts"
import type { RowOwner } from "#domain/row-owner.ts"
import { Configuration, maxConfigurationEntries } from "#services/configuration/Configuration.ts"
import { makeAudit } from "#services/provenance/audit.ts"
import type { Provenance } from "#services/provenance/Provenance.ts"
import { orUnavailable } from "#services/storage/outage.ts"
import { rowsOf } from "#services/storage/row-scope.ts"

const tooMany = invalidValue("body", `A configuration holds at most ${maxConfigurationEntries} entries.`)

/** Configuration maps in `public`, an entry a row. */
export const layer: Layer.Layer<Configuration, never, SqlClient.SqlClient | Provenance> = Layer.effect(
  Configuration,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const clock = yield* Clock.Clock
    const audit = yield* makeAudit

    const read = Effect.fn("Configuration.read")((owner: RowOwner) =>
      sql<{ name: string; value: Json }>`SELECT name, value FROM public.configuration
        WHERE ${rowsOf(sql, owner)} ORDER BY name`.pipe(
        Effect.map((rows) => Object.fromEntries(rows.map(({ name, value }) => [name, value]))),
        orUnavailable
      )
    )

    const update = Effect.fn("Configuration.update")(function* (
      owner: RowOwner,
      entries: ReadonlyMap<string, Json>,
      actor: string
    ) {
      if (entries.size === 0) return
      const at = new Date(clock.currentTimeMillisUnsafe())
      const removed = [...entries].filter(([, value]) => value === null).map(([name]) => name)
      const written = [...entries].filter(([, value]) => value !== null)
      yield* sql
        .withTransaction(
          Effect.gen(function* () {
            // One writer a map at a time: entries of two updates never lock each other out, and the count holds.
            yield* sql`SELECT pg_advisory_xact_lock(hashtext('sluice configuration'),
              hashtext(${`${owner.tenant}\n${owner.organizationId}`}))`
            if (removed.length > 0) {
              yield* sql`DELETE FROM public.configuration WHERE ${rowsOf(sql, owner)} AND ${sql.in("name", removed)}`
            }
            if (written.length > 0) {
              yield* sql`INSERT INTO public.configuration
                  (tenant, organization_id, name, value, updated_by, updated_at)
                SELECT ${owner.tenant}, ${owner.organizationId}, name, value::jsonb, ${actor}, ${at}::timestamptz
                FROM unnest(${written.map(([name]) => name)}::text[],
                  ${written.map(([, value]) => JSON.stringify(value))}::text[]) AS t (name, value)
                ON CONFLICT (tenant, organization_id, name) DO UPDATE
                  SET value = excluded.value, updated_by = excluded.updated_by, updated_at = excluded.updated_at`
            }
            const [count] = yield* sql<{ entries: number }>`SELECT count(*)::int AS entries FROM public.configuration
              WHERE ${rowsOf(sql, owner)}`
            if (count !== undefined && count.entries > maxConfigurationEntries) return yield* tooMany
            // Names alone: values are the operator's own and may be confidential.
            yield* audit({
              tenant: owner.tenant,
              organizationId: owner.organizationId,
              action: "config.updated",
              actor,
              resourceType: "config",
              resourceId: owner.organizationId,
              payload: { removed: removed.sort(), written: written.map(([name]) => name).sort() }
            })
          })
        )
        .pipe(orUnavailable)
    })

    return Configuration.of({ read, update })
  })
)
