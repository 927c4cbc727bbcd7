import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import type { SqlError } from "effect/sql/SqlError"

/** One account's part in a request for shares; the migration says what each field means. */
export interface LeaseItem {
  readonly a: string
  readonly budget: boolean
  readonly s: number
  readonly e: number | null
  readonly l: string
  readonly give: number
  readonly held: number
  readonly closing: boolean
  readonly low: number
  readonly need: number
  readonly extra: number
  readonly initial: string | null
}

/** `lapsed`: this process is not alive to the database. `missing`: no row yet, and nobody said what it starts from. */
export type LeaseOutcome = "done" | "refused" | "lapsed" | "missing" | "over"

export interface LeaseAnswer {
  readonly outcome: LeaseOutcome
  readonly granted: number
  /** Spent, or handed out of a rate, by everybody. */
  readonly counted: bigint
  /** Leased to other processes. */
  readonly elsewhere: bigint
  readonly start: number | undefined
  readonly end: number | undefined
  /** How many other processes are alive. */
  readonly others: number
}

/** A charge, summed per account and window. */
export interface PostItem {
  readonly a: string
  readonly s: number
  readonly c: string
}

export interface KeepItem {
  readonly a: string
  readonly s: number
  readonly k: number
}

export interface KeptLease {
  readonly account: string
  readonly start: number
  readonly amount: number
}

interface LeaseRow {
  readonly item: number
  readonly outcome: LeaseOutcome
  readonly granted: bigint
  readonly counted: bigint
  readonly elsewhere: bigint
  readonly began: bigint | null
  readonly ends: bigint | null
  readonly others: number
}

const numbered = (items: ReadonlyArray<object>): string => JSON.stringify(items.map((item, n) => ({ n, ...item })))
const millisOf = (value: bigint | null): number | undefined => (value === null ? undefined : Number(value))

/** The ledger's statements. All name schema public, because a caller's transaction may have another search path. */
export const make = Effect.fnUntraced(function* (life: string, ttlMs: number) {
  const sql = yield* SqlClient.SqlClient

  /** Answers in the order of the items, in one round trip. */
  const lease = (items: ReadonlyArray<LeaseItem>, now: number): Effect.Effect<ReadonlyArray<LeaseAnswer>, SqlError> =>
    Effect.map(
      sql<LeaseRow>`SELECT * FROM public.ledger_lease(${life}::text, ${ttlMs}::float8, ${now}::int8, ${numbered(items)}::jsonb)`,
      (rows) => {
        const answers = Array.from<LeaseAnswer>({ length: rows.length })
        for (const row of rows) {
          answers[row.item] = {
            outcome: row.outcome,
            granted: Number(row.granted),
            counted: row.counted,
            elsewhere: row.elsewhere,
            start: millisOf(row.began),
            end: millisOf(row.ends),
            others: row.others
          }
        }
        return answers
      }
    )

  /** Returns what each charge took off the lease, in the order of the items. */
  const post = (items: ReadonlyArray<PostItem>): Effect.Effect<ReadonlyArray<bigint>, SqlError> =>
    Effect.map(
      sql<{
        item: number
        deducted: bigint
      }>`SELECT * FROM public.ledger_post(${life}::text, ${numbered(items)}::jsonb)`,
      (rows) => {
        const deducted = Array.from<bigint>({ length: rows.length })
        for (const row of rows) deducted[row.item] = row.deducted
        return deducted
      }
    )

  const keep = (items: ReadonlyArray<KeepItem>): Effect.Effect<ReadonlyArray<KeptLease>, SqlError> =>
    Effect.map(
      sql<{
        kept_account: string
        kept_start: bigint
        kept_amount: bigint
      }>`SELECT * FROM public.ledger_keep(${life}::text, ${JSON.stringify(items)}::jsonb)`,
      (rows) =>
        rows.map((row) => ({
          account: row.kept_account,
          start: Number(row.kept_start),
          amount: Number(row.kept_amount)
        }))
    )

  /** Makes this process alive anew, from now on. */
  const register = (name: string) =>
    Effect.asVoid(sql`INSERT INTO public.ledger_holders (life, name, since, expires_at)
      VALUES (${life}, ${name}, clock_timestamp(), clock_timestamp() + ${ttlMs}::float8 * interval '1 millisecond')
      ON CONFLICT (life) DO UPDATE SET since = excluded.since, expires_at = excluded.expires_at`)

  /** Keeps this process alive; false when the database counts it as dead already. */
  const renew: Effect.Effect<boolean, SqlError> = Effect.map(
    sql`UPDATE public.ledger_holders
      SET expires_at = clock_timestamp() + ${ttlMs}::float8 * interval '1 millisecond'
      WHERE life = ${life} AND expires_at > clock_timestamp() RETURNING life`,
    (rows) => rows.length > 0
  )

  /** The process ends; what it still leases counts until it would have expired. */
  const leave = Effect.asVoid(
    Effect.andThen(
      sql`UPDATE public.ledger_holders SET stopped = true WHERE life = ${life}`,
      sql`DELETE FROM public.ledger_holders h WHERE h.life = ${life}
        AND NOT EXISTS (SELECT FROM public.ledger_leases l WHERE l.life = h.life)`
    )
  )

  /** Deletes what former lives of the same holder left behind. */
  const reclaim = (name: string) =>
    sql.withTransaction(
      Effect.asVoid(
        Effect.andThen(
          sql`DELETE FROM public.ledger_leases l USING public.ledger_holders h
            WHERE h.life = l.life AND h.name = ${name} AND h.life <> ${life}`,
          sql`DELETE FROM public.ledger_holders WHERE name = ${name} AND life <> ${life}`
        )
      )
    )

  const spent = (account: string, start: number) =>
    Effect.map(
      sql<{
        spent: bigint
      }>`SELECT spent FROM public.ledger_accounts WHERE account = ${account} AND window_start = ${start}::int8`,
      (rows) => rows[0]?.spent
    )

  const used = (account: string, now: number) =>
    Effect.map(
      sql<{
        used: bigint
      }>`SELECT used FROM public.ledger_rates WHERE account = ${account} AND window_end > ${now}::int8`,
      (rows) => rows[0]?.used
    )

  const day = 86_400_000
  const most = 1000
  /**
   * Deletes at most a thousand rows of each kind that nobody can need any more; true when there may be more. A budget's
   * window is kept for a day, because the next one asks whether it was watched.
   */
  const sweep = Effect.fnUntraced(function* (now: number) {
    const deleted = [
      yield* sql`DELETE FROM public.ledger_rates WHERE account IN (SELECT account FROM public.ledger_rates
        WHERE window_end < ${now - 3_600_000}::int8 LIMIT ${most}::int8 FOR UPDATE SKIP LOCKED) RETURNING 1`,
      yield* sql`DELETE FROM public.ledger_accounts t USING (SELECT account, window_start FROM public.ledger_accounts
        WHERE window_end < ${now - day}::int8 LIMIT ${most}::int8 FOR UPDATE SKIP LOCKED) AS old
        WHERE t.account = old.account AND t.window_start = old.window_start RETURNING 1`,
      yield* sql`DELETE FROM public.ledger_leases t USING (SELECT l.account, l.window_start, l.life
        FROM public.ledger_leases l LEFT JOIN public.ledger_holders h ON h.life = l.life
        WHERE h.life IS NULL OR h.expires_at < clock_timestamp() - interval '1 day' LIMIT ${most}::int8
        FOR UPDATE OF l SKIP LOCKED) AS old
        WHERE t.account = old.account AND t.window_start = old.window_start AND t.life = old.life RETURNING 1`
    ]
    yield* sql`DELETE FROM public.ledger_holders h WHERE h.expires_at < clock_timestamp() - interval '1 day'
      AND NOT EXISTS (SELECT FROM public.ledger_leases l WHERE l.life = h.life)`
    return deleted.some((rows) => rows.length === most)
  })

  return { lease, post, keep, register, renew, leave, reclaim, spent, used, sweep }
})

export type LedgerStatements = Effect.Success<ReturnType<typeof make>>
