import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import type { DayRange, DeveloperCall, DeveloperKeyUsage } from "#domain/developer.ts"
import type { DeveloperPrincipal } from "#domain/principal.ts"
import { DeveloperUsage, mostUsageRows } from "#services/developer/DeveloperUsage.ts"
import { orUnavailable } from "#services/storage/outage.ts"
import { nanosOf } from "#services/storage/rows.ts"
import { Tenants } from "#services/tenants/Tenants.ts"
import { UsageLedger } from "#services/usage/UsageLedger.ts"

interface SpendRow {
  readonly requests: string
  readonly spend: string
}

interface KeyUsageRow extends SpendRow {
  readonly id: string
  readonly key_name: string | null
  readonly key_alias: string | null
  readonly discarded: boolean
}

interface CallRow {
  readonly request_id: string
  readonly key_id: string
  readonly key_alias: string | null
  readonly operation: string
  readonly model: string
  readonly provider: string | null
  readonly status: string
  readonly error_code: string | null
  readonly stream: boolean
  readonly prompt_tokens: number
  readonly completion_tokens: number
  readonly spend: string
  readonly started_at: Date
  readonly duration_ms: number
}

const keyUsageOf = (row: KeyUsageRow): DeveloperKeyUsage => ({
  keyId: row.id,
  keyName: row.key_name,
  keyAlias: row.key_alias,
  discarded: row.discarded,
  requests: Number(row.requests),
  spend: nanosOf(row.spend) ?? 0n
})

const callOf = (row: CallRow): DeveloperCall => ({
  requestId: row.request_id,
  keyId: row.key_id,
  keyAlias: row.key_alias,
  operation: row.operation,
  model: row.model,
  provider: row.provider,
  status: row.status,
  errorCode: row.error_code,
  stream: row.stream,
  promptTokens: row.prompt_tokens,
  completionTokens: row.completion_tokens,
  spend: nanosOf(row.spend) ?? 0n,
  startedAt: row.started_at.getTime(),
  durationMs: row.duration_ms
})

const promptTokens = "input_tokens + cache_read_tokens + cache_write_tokens + audio_input_tokens"
const completionTokens = "output_tokens + reasoning_tokens + audio_output_tokens"

/**
 * Sums of the daily rollup and rows of the log, both by the ids of the developer's keys: no statement reads more than
 * these keys have.
 */
export const layer: Layer.Layer<DeveloperUsage, never, SqlClient.SqlClient | Tenants | UsageLedger> = Layer.effect(
  DeveloperUsage,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const tenants = yield* Tenants
    const ledger = yield* UsageLedger

    /** The developer's schema, after this process has written what it knows. */
    const current = (developer: DeveloperPrincipal) =>
      Effect.map(Effect.andThen(ledger.flush, tenants.schemaOf(developer.tenant)), (schema) => sql.literal(schema))

    const spend = Effect.fn("DeveloperUsage.spend")(function* (developer: DeveloperPrincipal, days: DayRange) {
      const schema = yield* current(developer)
      const [row] = yield* sql<SpendRow>`SELECT coalesce(sum(d.requests), 0)::text AS requests,
          coalesce(sum(d.spend), 0)::text AS spend
        FROM public.api_keys k JOIN ${schema}.daily_usage d
          ON d.key_id = k.id AND d.day BETWEEN ${days.start}::text::date AND ${days.end}::text::date
        WHERE k.user_id = ${developer.userId} AND k.tenant = ${developer.tenant}`.pipe(orUnavailable)
      return { requests: Number(row?.requests ?? 0), spend: nanosOf(row?.spend ?? null) ?? 0n }
    })

    const perKey = Effect.fn("DeveloperUsage.perKey")(function* (developer: DeveloperPrincipal, days: DayRange) {
      const schema = yield* current(developer)
      const rows =
        yield* sql<KeyUsageRow>`SELECT k.id, k.key_name, k.key_alias, k.discarded_at IS NOT NULL AS discarded,
          coalesce(d.requests, 0)::text AS requests, coalesce(d.spend, 0)::text AS spend
        FROM public.api_keys k LEFT JOIN LATERAL (
          SELECT sum(u.requests) AS requests, sum(u.spend) AS spend FROM ${schema}.daily_usage u
          WHERE u.key_id = k.id AND u.day BETWEEN ${days.start}::text::date AND ${days.end}::text::date
        ) d ON true
        WHERE k.user_id = ${developer.userId} AND k.tenant = ${developer.tenant}
        ORDER BY coalesce(d.spend, 0) DESC, k.created_at DESC, k.id DESC LIMIT ${mostUsageRows}::int`.pipe(
          orUnavailable
        )
      return rows.map(keyUsageOf)
    })

    const calls = Effect.fn("DeveloperUsage.calls")(function* (
      developer: DeveloperPrincipal,
      page: number,
      pageSize: number
    ) {
      const schema = yield* current(developer)
      const offset = page * pageSize
      const keys = sql`public.api_keys k`
      const mine = sql`k.user_id = ${developer.userId} AND k.tenant = ${developer.tenant}`
      // The index alone tells when the page begins and ends; only its own rows are then read.
      const rows = yield* sql<CallRow>`WITH stamps AS MATERIALIZED (
          SELECT l.started_at FROM ${keys} CROSS JOIN LATERAL (
            SELECT s.started_at FROM ${schema}.spend_logs s WHERE s.key_id = k.id
            ORDER BY s.started_at DESC LIMIT ${offset + pageSize}::int8
          ) l WHERE ${mine}
        ), bounds AS (
          SELECT max(started_at) AS newest, min(started_at) AS oldest FROM (
            SELECT started_at FROM stamps ORDER BY started_at DESC LIMIT ${pageSize}::int OFFSET ${offset}::int8
          ) page
        )
        SELECT s.request_id, s.key_id, k.key_alias, s.operation, s.model, s.provider, s.status, s.error_code, s.stream,
          ${sql.literal(promptTokens)} AS prompt_tokens, ${sql.literal(completionTokens)} AS completion_tokens,
          s.spend::text AS spend, s.started_at, s.duration_ms
        FROM bounds b CROSS JOIN ${keys} JOIN ${schema}.spend_logs s
          ON s.key_id = k.id AND s.started_at BETWEEN b.oldest AND b.newest
        WHERE ${mine}
        ORDER BY s.started_at DESC, s.call_id DESC
        LIMIT ${pageSize}::int
        OFFSET ${offset}::int8 - (SELECT count(*) FROM stamps, bounds WHERE started_at > newest)`.pipe(orUnavailable)
      return rows.map(callOf)
    })

    return DeveloperUsage.of({ spend, perKey, calls })
  })
)
