import { Clock, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { InternalFailure, invalidValue } from "#domain/errors.ts"
import { nanosFromDollars } from "#domain/money.ts"
import { publicTenant } from "#domain/principal.ts"
import { type BillingPosition, makeBillingCursors } from "#layers/billing/billing-cursor.ts"
import { compareText, orgOf } from "#layers/billing/organizations.ts"
import { BillingExport, type BillingRecord } from "#services/billing/BillingExport.ts"
import { InstanceSecrets } from "#services/security/InstanceSecrets.ts"
import { Tenants } from "#services/tenants/Tenants.ts"
import { UsageLedger } from "#services/usage/UsageLedger.ts"

interface UsageRow {
  readonly day: string
  readonly organization_id: string
  readonly requests: bigint
  readonly prompt_tokens: bigint
  readonly completion_tokens: bigint
  readonly spend: string
}

interface Positioned {
  readonly position: BillingPosition
  readonly row: UsageRow
}

const DAY_MS = 86_400_000
/** How long after its end a day stays open, for calls that are being written down. */
const GRACE_MS = 5 * 60_000
/** Tenants that are read at once. */
const PARALLEL = 4

const badCursor = invalidValue("cursor", "'cursor' is not one that this export gave out.")

const dayText = (millis: number): string => new Date(millis).toISOString().slice(0, 10)

const compare = (a: BillingPosition, b: BillingPosition): number =>
  compareText(a.day, b.day) || compareText(a.org, b.org) || compareText(a.tenant, b.tenant)

const columns = "day::text AS day, organization_id, requests, prompt_tokens, completion_tokens, spend"

/**
 * The first rows of a schema after a position, each arm along the primary key. Usage without an organization goes by the
 * tenant's slug, which stands elsewhere in the order than its empty key does, so it is an arm of its own. `$1` the last
 * closed day, `$2` the number of rows; with a position `$3` the slug, `$4` to `$6` the position.
 */
const pageStatement = (schema: string, from: boolean): string => {
  const table = `${schema}.organization_usage`
  const slug = `$3::text COLLATE "C"`
  const tie = `${slug} > $6::text`
  const named = from
    ? `AND (day, organization_id) >= ($4::text::date, $5) AND ((day, organization_id) > ($4::text::date, $5) OR ${tie})`
    : ""
  const unnamed = from
    ? `AND day >= $4::text::date AND (day > $4::text::date OR ${slug} > $5::text OR (${slug} = $5::text AND ${tie}))`
    : ""
  return `(SELECT ${columns} FROM ${table} WHERE day <= $1::text::date AND organization_id <> '' ${named}
    ORDER BY organization_usage.day, organization_id LIMIT $2)
  UNION ALL
  (SELECT ${columns} FROM ${table} WHERE day <= $1::text::date AND organization_id = '' ${unnamed}
    ORDER BY organization_usage.day LIMIT $2)`
}

/**
 * Pages over `organization_usage` of every tenant, merged: each tenant gives at most as many rows as the page holds, found
 * through its index, so a page costs the same wherever it is.
 */
export const layer: Layer.Layer<BillingExport, never, SqlClient.SqlClient | Tenants | UsageLedger | InstanceSecrets> =
  Layer.effect(
    BillingExport,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const tenants = yield* Tenants
      const usage = yield* UsageLedger
      const clock = yield* Clock.Clock
      const cursors = makeBillingCursors(yield* InstanceSecrets)
      const everybody = [publicTenant, ...tenants.slugs]
      /** What this process knows to be closed, by schema; a closed day never opens again. */
      const closed = new Map<string, string>()

      /** Closes the days up to one. Waits for transactions that are adding to them, and holds off none that come later. */
      const close = Effect.fnUntraced(function* (schema: string, through: string) {
        if ((closed.get(schema) ?? "") >= through) return
        const [state] = yield* sql.unsafe<{ closed_through: string }>(
          `SELECT closed_through::text FROM ${schema}.usage_days`
        )
        if (state === undefined || state.closed_through < through) {
          yield* sql.withTransaction(
            Effect.andThen(
              sql.unsafe("SELECT pg_advisory_xact_lock(hashtext('sluice usage days'), hashtext($1))", [
                schema.replaceAll('"', "")
              ]),
              sql.unsafe(`UPDATE ${schema}.usage_days SET closed_through = greatest(closed_through, $1::text::date)`, [
                through
              ])
            )
          )
        }
        closed.set(schema, through)
      })

      const readTenant = Effect.fnUntraced(function* (
        tenant: string,
        through: string,
        from: BillingPosition | undefined,
        limit: number
      ) {
        const schema = yield* tenants.schemaOf(tenant)
        yield* close(schema, through)
        const values = [through, limit, ...(from === undefined ? [] : [tenant, from.day, from.org, from.tenant])]
        const rows = yield* sql.unsafe<UsageRow>(pageStatement(schema, from !== undefined), values)
        return rows.map((row): Positioned => ({
          row,
          position: { day: row.day, org: orgOf(row.organization_id, tenant), tenant }
        }))
      })

      const failed = (tenant: string) =>
        new InternalFailure({
          code: "internal_error",
          message:
            tenant === publicTenant
              ? "The usage of the public scope could not be read; nothing was exported."
              : `The usage of tenant '${tenant}' could not be read; nothing was exported.`
        })

      const recordOf = ({ position, row }: Positioned): BillingRecord => {
        const start = Date.parse(`${row.day}T00:00:00Z`)
        return {
          periodStart: start,
          periodEnd: start + DAY_MS,
          org: position.org,
          tenant: position.tenant,
          requests: Number(row.requests),
          promptTokens: Number(row.prompt_tokens),
          completionTokens: Number(row.completion_tokens),
          spend: nanosFromDollars(row.spend) ?? 0n
        }
      }

      const page = Effect.fn("BillingExport.page")(function* (cursor: string | undefined, limit: number) {
        const from = cursor === undefined ? undefined : cursors.read(cursor)
        if (cursor !== undefined && from === undefined) return yield* badCursor
        yield* usage.flush
        // Today is open, and so is yesterday for its grace.
        const through = dayText(clock.currentTimeMillisUnsafe() - GRACE_MS - DAY_MS)
        const found = yield* Effect.forEach(
          everybody,
          (tenant) =>
            readTenant(tenant, through, from, limit + 1).pipe(
              Effect.catch((cause) => Effect.fail(Object.assign(failed(tenant), { cause }))),
              Effect.catchDefect((cause) => Effect.fail(Object.assign(failed(tenant), { cause })))
            ),
          { concurrency: PARALLEL }
        )
        const merged = found.flat().sort((a, b) => compare(a.position, b.position))
        const chosen = merged.slice(0, limit)
        const last = chosen.at(-1)
        const resume = last === undefined ? cursor : cursors.write(last.position)
        return {
          records: chosen.map(recordOf),
          next: merged.length > limit ? resume : undefined,
          resume
        }
      })

      return BillingExport.of({ page })
    })
  )
