import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { uuidv7 } from "#domain/ids.ts"
import { ensurePartitions } from "#layers/usage/Partitions.ts"
import { makeSpendRows } from "#layers/usage/SpendRows.ts"
import { testDatabase } from "#test/support/Postgres.ts"
import { booksOf, outcomeOf, underUsage } from "#test/support/usage.ts"

const partitionsOf = (table: string) =>
  Effect.map(
    SqlClient.SqlClient.use(
      (sql) => sql<{ name: string }>`SELECT inhrelid::regclass::text AS name FROM pg_inherits
        WHERE inhparent = ${table}::regclass ORDER BY 1`
    ),
    (rows) => rows.map((row) => row.name)
  )

describe("ensurePartitions", () => {
  it.effect("makes this month and the two after it, once, also when processes race", () =>
    Effect.gen(function* () {
      yield* TestClock.setTime(Date.UTC(2026, 10, 30, 23, 59))
      yield* Effect.all(
        Array.from({ length: 4 }, () => ensurePartitions("public")),
        { concurrency: "unbounded" }
      )
      const months = ["2026_11", "2026_12", "2027_01"]
      for (const table of ["spend_logs", "guardrail_logs"]) {
        assert.deepStrictEqual(yield* partitionsOf(table), [
          ...months.map((month) => `${table}_${month}`),
          `${table}_other`
        ])
      }
      assert.deepStrictEqual(yield* partitionsOf("provenance_entries"), [
        "provenance_entries_0",
        "provenance_entries_1",
        "provenance_entries_other"
      ])
    }).pipe(Effect.provide(testDatabase()))
  )

  it.effect("moves rows that came before their partition; they still count once", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const rows = yield* makeSpendRows
      const first = Date.UTC(2026, 10, 1)
      const outcomes = [first - 1, first, first + 1, Date.UTC(2026, 10, 30, 23, 59, 59, 999)].map((recordedAt) =>
        outcomeOf(uuidv7(recordedAt), 1n, { recordedAt })
      )
      yield* rows.write(outcomes, new Set())
      yield* TestClock.setTime(first)
      yield* ensurePartitions("public")
      assert.strictEqual((yield* sql`SELECT 1 FROM spend_logs_2026_11`).length, 3)
      assert.strictEqual((yield* sql`SELECT 1 FROM spend_logs_other`).length, 1)
      yield* rows.write(outcomes, new Set())
      const books = yield* booksOf("", "public")
      assert.deepInclude(books, { rows: 4, spend: 4n, dailySpend: 4n, keySpend: 4n, chain: 4 })
      const days = yield* sql`SELECT day::text AS day, requests FROM daily_usage ORDER BY day`
      assert.deepStrictEqual(
        days.map((row) => row["day"]),
        ["2026-10-31", "2026-11-01", "2026-11-01", "2026-11-30"]
      )
    }).pipe(Effect.provide(underUsage().pipe(Layer.provideMerge(testDatabase()))))
  )
})
