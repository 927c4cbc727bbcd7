import { Clock, Effect } from "effect"
import { SqlClient, type SqlError } from "effect/sql"

/** Entries of one partition of the provenance chain. */
const CHAIN_STEP = 10_000_000

interface Partition {
  readonly table: string
  readonly column: string
  readonly name: string
  readonly from: string
  readonly to: string
}

const monthly = (table: string, column: string, now: number, ahead: number): Partition => {
  const date = new Date(now)
  const first = new Date(Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + ahead, 1))
  const next = new Date(Date.UTC(first.getUTCFullYear(), first.getUTCMonth() + 1, 1))
  const month = first.toISOString().slice(0, 7).replace("-", "_")
  return {
    table,
    column,
    name: `${table}_${month}`,
    from: `'${first.toISOString().slice(0, 10)} 00:00+00'`,
    to: `'${next.toISOString().slice(0, 10)} 00:00+00'`
  }
}

const chained = (sequence: number, ahead: number): Partition => {
  const step = Math.floor(sequence / CHAIN_STEP) + ahead
  return {
    table: "provenance_entries",
    column: "sequence_number",
    name: `provenance_entries_${step}`,
    from: String(step * CHAIN_STEP),
    to: String((step + 1) * CHAIN_STEP)
  }
}

/**
 * Makes the partitions of this month and the two after it, and of the next entries of the provenance chain. Safe to run
 * in several processes at once. Rows that came before their partition, and so are in the default one, move into it.
 */
export const ensurePartitions = Effect.fn("ensurePartitions")(function* (
  schema: string
): Effect.fn.Return<void, SqlError.SqlError, SqlClient.SqlClient> {
  const sql = yield* SqlClient.SqlClient
  const now = yield* Clock.currentTimeMillis
  const run = (statement: string) => sql.unsafe(statement).unprepared
  const heads = yield* sql.unsafe<{ sequence_number: bigint }>(`SELECT sequence_number FROM ${schema}.provenance_head`)
  const sequence = Number(heads[0]?.sequence_number ?? 0n)
  const wanted = [0, 1, 2].flatMap((ahead) => [
    monthly("spend_logs", "recorded_at", now, ahead),
    monthly("guardrail_logs", "created_at", now, ahead),
    ...(ahead < 2 ? [chained(sequence, ahead)] : [])
  ])
  const rows = yield* sql.unsafe<{ relname: string }>(
    "SELECT relname FROM pg_catalog.pg_class WHERE relnamespace = $1::regnamespace AND relispartition",
    [schema]
  )
  const existing = new Set(rows.map((row) => row.relname))
  for (const partition of wanted) {
    if (existing.has(partition.name)) continue
    const { column, from, name, table, to } = partition
    yield* sql.withTransaction(
      Effect.gen(function* () {
        yield* run("SET LOCAL lock_timeout TO '5s'")
        yield* run(`SELECT pg_advisory_xact_lock(hashtext('sluice partitions'), hashtext('${name}'))`)
        const found = yield* sql.unsafe<{ there: boolean }>("SELECT to_regclass($1) IS NOT NULL AS there", [
          `${schema}.${name}`
        ])
        if (found[0]?.there === true) return
        yield* run(`CREATE TABLE ${schema}.${name} (LIKE ${schema}.${table} INCLUDING DEFAULTS INCLUDING CONSTRAINTS)`)
        // Keeps new rows out of the default partition until this one is attached.
        yield* run(`LOCK TABLE ${schema}.${table}_other IN ACCESS EXCLUSIVE MODE`)
        yield* run(`WITH moved AS (
          DELETE FROM ${schema}.${table}_other WHERE ${column} >= ${from} AND ${column} < ${to} RETURNING *
        ) INSERT INTO ${schema}.${name} SELECT * FROM moved`)
        yield* run(
          `ALTER TABLE ${schema}.${table} ATTACH PARTITION ${schema}.${name} FOR VALUES FROM (${from}) TO (${to})`
        )
      })
    )
  }
})
