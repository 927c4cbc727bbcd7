import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import type { Nanos } from "#domain/money.ts"
import { AccountSpend, type AccountWindow } from "#services/budgets/AccountSpend.ts"
import { orUnavailable } from "#services/storage/outage.ts"

/** `ledger_accounts`, read by its primary key. */
export const layer: Layer.Layer<AccountSpend, never, SqlClient.SqlClient> = Layer.effect(
  AccountSpend,
  Effect.map(SqlClient.SqlClient, (sql) =>
    AccountSpend.of({
      spent: Effect.fn("AccountSpend.spent")(function* (windows: ReadonlyArray<AccountWindow>) {
        const spends = Array.from<Nanos>({ length: windows.length }).fill(0n)
        if (windows.length === 0) return spends
        const rows = yield* sql<{ readonly at: bigint; readonly spent: bigint }>`SELECT t.at, a.spent
          FROM unnest(${windows.map(({ account }) => account)}::text[], ${windows.map(({ windowStart }) => String(windowStart))}::text[]::int8[])
            WITH ORDINALITY AS t (account, window_start, at)
          JOIN public.ledger_accounts a ON a.account = t.account COLLATE "C" AND a.window_start = t.window_start`.pipe(
          orUnavailable
        )
        for (const { at, spent } of rows) spends[Number(at) - 1] = spent
        return spends
      })
    })
  )
)
