import * as PgTypes from "@effect/sql-pg/PgTypes"
import { Effect, Result } from "effect"
import type { SqlClient } from "effect/sql"
import { isUuid } from "#domain/ids.ts"
import { nanosFromDollars, type Nanos } from "#domain/money.ts"
import type { UsageTotals } from "#services/usage/UsageLedger.ts"

interface TotalsRow {
  readonly requests: string | null
  readonly prompt_tokens: string | null
  readonly completion_tokens: string | null
  readonly spend: string | null
}

const nothing: UsageTotals = { spend: 0n, requests: 0, promptTokens: 0, completionTokens: 0 }

const nanos = (text: string): Nanos => nanosFromDollars(text) ?? 0n

const SUMS = `sum(requests) AS requests, sum(prompt_tokens) AS prompt_tokens,
  sum(completion_tokens) AS completion_tokens, sum(spend) AS spend`

/** The rollups read, never the log. A key belongs to one tenant, so asking every schema finds it in one. */
export const makeUsageTotals = (sql: SqlClient.SqlClient, schemas: ReadonlyArray<string>) => {
  const everywhere = (table: string, columns: string, where: string): string =>
    schemas.map((schema) => `SELECT ${columns} FROM ${schema}.${table} ${where}`).join(" UNION ALL ")

  const total = (statement: string, values: ReadonlyArray<unknown>) =>
    Effect.map(sql.unsafe<TotalsRow>(statement, values), ([row]): UsageTotals =>
      row === undefined || row.requests === null
        ? nothing
        : {
            requests: Number(row.requests),
            promptTokens: Number(row.prompt_tokens),
            completionTokens: Number(row.completion_tokens),
            spend: nanos(row.spend ?? "0")
          }
    )

  const parts = "requests, prompt_tokens, completion_tokens, spend"
  const days = "day BETWEEN $1::text::date AND $2::text::date"
  const statements = {
    lifetimeOfAll: `SELECT ${SUMS} FROM (${everywhere("key_usage", parts, "")}) AS t`,
    lifetimeOfKey: `SELECT ${SUMS} FROM (${everywhere("key_usage", parts, "WHERE key_id = $1")}) AS t`,
    windowOfAll: `SELECT ${SUMS} FROM (${everywhere("organization_usage", parts, `WHERE ${days}`)}) AS t`,
    windowOfKey: `SELECT ${SUMS} FROM (${everywhere("daily_usage", parts, `WHERE ${days} AND key_id = $3`)}) AS t`,
    spendOfKeys: everywhere("key_usage", "key_id::text AS key_id, spend", "WHERE key_id = ANY ($1::uuid[])")
  }

  return {
    lifetime: (keyId: string | null) => {
      if (keyId === null) return total(statements.lifetimeOfAll, [])
      return isUuid(keyId) ? total(statements.lifetimeOfKey, [PgTypes.uuid(keyId)]) : Effect.succeed(nothing)
    },
    window: (keyId: string | null, startDay: string, endDay: string) => {
      if (keyId === null) return total(statements.windowOfAll, [startDay, endDay])
      return isUuid(keyId)
        ? total(statements.windowOfKey, [startDay, endDay, PgTypes.uuid(keyId)])
        : Effect.succeed(nothing)
    },
    spendOfKeys: (keyIds: ReadonlyArray<string>) => {
      const ids = keyIds.filter(isUuid)
      const array = Result.getOrThrow(PgTypes.array(ids, PgTypes.OID.uuid))
      return Effect.map(
        ids.length === 0
          ? Effect.succeed([])
          : sql.unsafe<{ key_id: string; spend: string }>(statements.spendOfKeys, [array]),
        (rows): ReadonlyMap<string, Nanos> => {
          const found = new Map(rows.map((row) => [row.key_id, nanos(row.spend)]))
          return new Map(keyIds.map((id) => [id, found.get(id.toLowerCase()) ?? 0n]))
        }
      )
    }
  }
}
