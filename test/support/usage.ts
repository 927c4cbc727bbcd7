import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as PgTypes from "@effect/sql-pg/PgTypes"
import { Effect, Layer, Result } from "effect"
import { SqlClient } from "effect/sql"
import { databaseUnavailable } from "#domain/errors.ts"
import { uuidv7 } from "#domain/ids.ts"
import { nanosFromDollars } from "#domain/money.ts"
import { usageOf } from "#domain/usage.ts"
import { migrate } from "#layers/storage/Migrator.ts"
import * as OutboxPostgres from "#layers/callbacks/OutboxPostgres.ts"
import * as ProvenancePostgres from "#layers/provenance/ProvenancePostgres.ts"
import * as TenantsPostgres from "#layers/tenants/TenantsPostgres.ts"
import { BudgetLedger, type Charge } from "#services/budgets/BudgetLedger.ts"
import { Provenance } from "#services/provenance/Provenance.ts"
import { DatabaseStartError } from "#services/storage/DatabaseServer.ts"
import { Migrations } from "#services/storage/Migrations.ts"
import { type Outcome, UsageLedger } from "#services/usage/UsageLedger.ts"

/** A directory that goes away with the scope. */
export const temporaryDirectory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "sluice-usage-"))),
  (directory) => Effect.sync(() => rmSync(directory, { recursive: true, force: true }))
)

/** A finished call of a chat model; `nanos` is its cost, and what its one charge takes. */
export const outcomeOf = (keyId: string | null, nanos: bigint, more: Partial<Outcome> = {}): Outcome => {
  const now = Date.now()
  const callId = uuidv7(now)
  return {
    callId,
    requestId: `req-${callId}`,
    recordedAt: now,
    startedAt: now - 500,
    tenant: "",
    keyId,
    userId: "user-1",
    teamId: "team-1",
    organizationId: "org-1",
    endUserId: null,
    operation: "chat",
    model: "gpt-4o-mini",
    provider: "openai",
    upstreamModel: "gpt-4o-mini-2024",
    deploymentId: null,
    status: "success",
    httpStatus: 200,
    errorCode: null,
    stream: false,
    usage: usageOf({ input: 100, cacheRead: 20, output: 30, reasoning: 3 }),
    cost: nanos,
    priced: true,
    durationMs: 512.4,
    firstByteMs: null,
    charges: nanos === 0n ? [] : [{ account: `budget:key:${keyId ?? "master"}`, windowStart: 0, nanos }],
    guardrails: [],
    ...more
  }
}

/** One that has nothing pending. */
export const idleUsageLedger = Layer.mock(UsageLedger, {
  append: (_, written) => written(),
  isFull: () => false,
  flush: Effect.void
})

/** Which charges `posted` was told of. */
export interface PostedCharges {
  readonly posted: Array<Charge>
}

/** Moves charges into a table of the test's own, in the given transaction as the real ledger does, and holds nothing else. */
export const accountsOnly = (
  seen: PostedCharges = { posted: [] }
): Layer.Layer<BudgetLedger, never, SqlClient.SqlClient> =>
  Layer.effect(
    BudgetLedger,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* Effect.orDie(
        sql`CREATE TABLE IF NOT EXISTS public.test_accounts (account text PRIMARY KEY, spent bigint NOT NULL)`
      )
      const array = (values: ReadonlyArray<unknown>, oid: number) => Result.getOrThrow(PgTypes.array(values, oid))
      return BudgetLedger.of({
        reserve: () => Effect.fail(databaseUnavailable),
        tryReserve: () => undefined,
        post: (charges) => {
          const sums = new Map<string, bigint>()
          for (const charge of charges) sums.set(charge.account, (sums.get(charge.account) ?? 0n) + charge.nanos)
          const accounts = [...sums.keys()].sort()
          return Effect.asVoid(
            sql.unsafe(
              `INSERT INTO public.test_accounts AS a (account, spent)
               SELECT account, amount FROM unnest($1::text[], $2::int8[]) AS t (account, amount)
               ON CONFLICT (account) DO UPDATE SET spent = a.spent + excluded.spent`,
              [
                array(accounts, PgTypes.OID.text),
                array(
                  accounts.map((account) => sums.get(account)),
                  PgTypes.OID.int8
                )
              ]
            )
          )
        },
        posted: (charges) => {
          seen.posted.push(...charges)
        },
        quota: () => ({ requests: undefined, tokens: undefined, budgetRemaining: undefined }),
        spent: () => Effect.succeed(0n)
      })
    })
  )

/** The project's own migrations. */
export const migrations: Layer.Layer<Migrations, never, SqlClient.SqlClient> = Layer.effect(
  Migrations,
  Effect.map(SqlClient.SqlClient, (sql) => ({
    migrate: (schemas: ReadonlyArray<string>) =>
      migrate({ schemas }).pipe(
        Effect.provideService(SqlClient.SqlClient, sql),
        Effect.mapError((error) => new DatabaseStartError({ message: error.message })),
        Effect.asVoid
      )
  }))
)

/** What the usage ledger stands on, over a database. */
export const underUsage = (slugs: ReadonlyArray<string> = [], seen?: PostedCharges) =>
  Layer.mergeAll(accountsOnly(seen), OutboxPostgres.layer, ProvenancePostgres.layer).pipe(
    Layer.provideMerge(TenantsPostgres.layer(slugs)),
    Layer.provide(migrations),
    Layer.orDie
  )

/** What the books of one schema say, each from its own table; all money in nano-dollars. */
export interface Books {
  readonly rows: number
  readonly distinct: number
  readonly spend: bigint
  readonly dailyRequests: number
  readonly dailySpend: bigint
  readonly keyRequests: number
  readonly keySpend: bigint
  readonly promptTokens: number
  readonly dailyPromptTokens: number
  readonly chain: number
}

/** Reads the books and walks the chain, which must be whole. */
export const booksOf = (tenant: string, schema: string) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const provenance = yield* Provenance
    const [row] = yield* sql.unsafe<Record<string, string>>(`SELECT
      (SELECT count(*)::text FROM ${schema}.spend_logs) AS rows,
      (SELECT count(DISTINCT call_id)::text FROM ${schema}.spend_logs) AS distinct,
      (SELECT coalesce(sum(spend), 0)::text FROM ${schema}.spend_logs) AS spend,
      (SELECT coalesce(sum(input_tokens + cache_read_tokens + cache_write_tokens + audio_input_tokens), 0)::text
         FROM ${schema}.spend_logs) AS prompt_tokens,
      (SELECT coalesce(sum(requests), 0)::text FROM ${schema}.daily_usage) AS daily_requests,
      (SELECT coalesce(sum(spend), 0)::text FROM ${schema}.daily_usage) AS daily_spend,
      (SELECT coalesce(sum(prompt_tokens), 0)::text FROM ${schema}.daily_usage) AS daily_prompt_tokens,
      (SELECT coalesce(sum(requests), 0)::text FROM ${schema}.key_usage) AS key_requests,
      (SELECT coalesce(sum(spend), 0)::text FROM ${schema}.key_usage) AS key_spend`)
    const report = yield* provenance.verify(tenant)
    if (report.broken !== undefined) return yield* Effect.die(new Error(`broken chain: ${JSON.stringify(report)}`))
    const nanos = (name: string) => nanosFromDollars(row![name]!)!
    const books: Books = {
      rows: Number(row!["rows"]),
      distinct: Number(row!["distinct"]),
      spend: nanos("spend"),
      dailyRequests: Number(row!["daily_requests"]),
      dailySpend: nanos("daily_spend"),
      keyRequests: Number(row!["key_requests"]),
      keySpend: nanos("key_spend"),
      promptTokens: Number(row!["prompt_tokens"]),
      dailyPromptTokens: Number(row!["daily_prompt_tokens"]),
      chain: report.entries
    }
    return books
  })

/** What the accounts say was spent. */
export const accountsSpent = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* sql<{ spent: string }>`SELECT coalesce(sum(spent), 0)::text AS spent FROM public.test_accounts`
  return BigInt(rows[0]!.spent)
})
