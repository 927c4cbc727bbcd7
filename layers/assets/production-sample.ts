/** Items of datasets out of a tenant's own spend log. */
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import type { JsonObject } from "#domain/json.ts"
import { publicTenant } from "#domain/principal.ts"
import { Tenants } from "#services/tenants/Tenants.ts"
import { UsageLedger } from "#services/usage/UsageLedger.ts"

interface SpendRow {
  readonly call_id: string
  readonly request_id: string
  readonly started_at: Date
  readonly operation: string
  readonly model: string
  readonly provider: string | null
  readonly upstream_model: string | null
  readonly status: string
  readonly stream: boolean
  readonly prompt_tokens: number
  readonly completion_tokens: number
  readonly spend: string
  readonly duration_ms: number
}

const itemOf = (row: SpendRow): JsonObject => ({
  id: row.call_id,
  input: { model: row.model, operation: row.operation, stream: row.stream },
  production: {
    completion_tokens: row.completion_tokens,
    duration_ms: row.duration_ms,
    prompt_tokens: row.prompt_tokens,
    provider: row.provider,
    request_id: row.request_id,
    spend: Number(row.spend),
    started_at: row.started_at.toISOString(),
    status: row.status,
    upstream_model: row.upstream_model
  }
})

export const makeProductionSample = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const tenants = yield* Tenants
  const usage = yield* UsageLedger

  const take = (
    schema: string,
    dataset: { readonly id: string; readonly tenant: string; readonly organization_id: string },
    size: number
  ) => {
    const own = sql.and([
      sql`true`,
      ...(dataset.organization_id === "" ? [] : [sql`s.organization_id = ${dataset.organization_id}`]),
      // Without tenants configured one log holds everybody's rows, and only their keys tell them apart.
      ...(tenants.dormant
        ? [
            dataset.tenant === publicTenant
              ? sql`NOT EXISTS (SELECT FROM public.api_keys k WHERE k.id = s.key_id AND k.tenant <> ${publicTenant})`
              : sql`EXISTS (SELECT FROM public.api_keys k WHERE k.id = s.key_id AND k.tenant = ${dataset.tenant})`
          ]
        : [])
    ])
    return Effect.map(
      // Call ids are UUIDv7: their order is that of time.
      sql<SpendRow>`SELECT s.call_id, s.request_id, s.started_at, s.operation, s.model, s.provider, s.upstream_model,
          s.status, s.stream, s.input_tokens + s.cache_read_tokens + s.cache_write_tokens + s.audio_input_tokens
            AS prompt_tokens, s.output_tokens + s.reasoning_tokens + s.audio_output_tokens AS completion_tokens,
          s.spend::text AS spend, s.duration_ms
        FROM ${sql.literal(`${schema}.spend_logs`)} s
        WHERE ${own} AND NOT EXISTS (SELECT FROM ${sql.literal(`${schema}.asset_items`)} i
          WHERE i.asset_id = ${dataset.id} AND i.item_list = 0 AND i.item_id = s.call_id::text)
        ORDER BY s.call_id DESC LIMIT ${size}`,
      (rows) => rows.map(itemOf)
    )
  }

  /** `ready` waits for what this process has not written yet, so that a caller samples its own calls. */
  return { ready: usage.flush, take }
})
