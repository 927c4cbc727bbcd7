import { existsSync, readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { uuidv7 } from "#domain/ids.ts"
import * as OutboxPostgres from "#layers/callbacks/OutboxPostgres.ts"
import * as ProvenancePostgres from "#layers/provenance/ProvenancePostgres.ts"
import * as DatabasePostgres from "#layers/storage/DatabasePostgres.ts"
import { lineOf } from "#layers/usage/outcome-line.ts"
import * as UsageLedgerPostgres from "#layers/usage/UsageLedgerPostgres.ts"
import { BudgetLedger } from "#services/budgets/BudgetLedger.ts"
import { DatabaseServer } from "#services/storage/DatabaseServer.ts"
import { Tenants } from "#services/tenants/Tenants.ts"
import { UsageLedger } from "#services/usage/UsageLedger.ts"
import { testDatabase } from "#test/support/Postgres.ts"
import {
  accountsSpent,
  booksOf,
  outcomeOf,
  type PostedCharges,
  temporaryDirectory,
  underUsage
} from "#test/support/usage.ts"

const LIMIT = 64 * 1024 * 1024
const ledger = (directory: string, worker = "w0", limitBytes = LIMIT) =>
  UsageLedgerPostgres.layer({ directory, worker, limitBytes })

const today = () => new Date().toISOString().slice(0, 10)

/** Rollups, chain and accounts say what the rows say, to the nano-dollar. */
const assertBooks = Effect.fnUntraced(function* (tenant: string, schema: string, rows: number, spend: bigint) {
  const books = yield* booksOf(tenant, schema)
  assert.deepStrictEqual(books, {
    rows,
    distinct: rows,
    spend,
    dailyRequests: rows,
    dailySpend: spend,
    keyRequests: rows,
    keySpend: spend,
    promptTokens: books.promptTokens,
    dailyPromptTokens: books.promptTokens,
    chain: rows
  })
})

describe("UsageLedgerPostgres", () => {
  it.effect("writes every outcome once, with rollups, charges, chain and guardrail log that agree", () => {
    const seen: PostedCharges = { posted: [] }
    return Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      yield* Effect.gen(function* () {
        const usage = yield* UsageLedger
        const sql = yield* SqlClient.SqlClient
        const key = uuidv7(Date.now())
        const outcomes = Array.from({ length: 700 }, (_, index) => outcomeOf(key, BigInt(index + 1)))
        const master = outcomeOf(null, 5n, {
          charges: [],
          model: "other",
          endUserId: `\0\ud800${"x".repeat(5000)}`,
          guardrails: [
            {
              guardrailId: "g1",
              guardrailName: "pii",
              status: "masked",
              stage: "pre",
              durationMs: 0.25,
              confidence: null,
              originalContent: "a\0b",
              modifiedContent: "<X>"
            }
          ]
        })
        yield* Effect.forEach([...outcomes, master], usage.record, { concurrency: "unbounded", discard: true })

        const spend = (700n * 701n) / 2n
        assert.deepStrictEqual(yield* usage.lifetime(key), {
          spend,
          requests: 700,
          promptTokens: 700 * 120,
          completionTokens: 700 * 33
        })
        assert.strictEqual((yield* usage.lifetime(null)).spend, spend + 5n)
        assert.strictEqual((yield* usage.window(key, today(), today())).requests, 700)
        assert.strictEqual((yield* usage.window(null, "2020-01-01", "2020-12-31")).requests, 0)
        assert.deepStrictEqual(
          yield* usage.spendOfKeys([key, "no uuid"]),
          new Map([
            [key, spend],
            ["no uuid", 0n]
          ])
        )
        yield* assertBooks("", "public", 701, spend + 5n)
        assert.strictEqual(yield* accountsSpent, spend)
        assert.strictEqual(seen.posted.length, 700)

        const [row] = yield* sql`SELECT key_id, end_user_id, spend, duration_ms, recorded_at FROM spend_logs
          WHERE call_id = ${master.callId}::uuid`
        assert.strictEqual(row?.["key_id"], null)
        assert.strictEqual(String(row?.["end_user_id"]).length, 1024)
        assert.strictEqual(row?.["spend"], "0.000000005")
        assert.strictEqual(row?.["duration_ms"], 512)
        assert.deepStrictEqual(row?.["recorded_at"], new Date(master.recordedAt))
        const logs = yield* sql`SELECT guardrail_name, status, original_content FROM guardrail_logs`
        assert.deepStrictEqual(logs, [{ guardrail_name: "pii", status: "masked", original_content: "a\ufffdb" }])
        const [entry] = yield* sql`SELECT action, actor, resource_type, resource_id, payload FROM provenance_entries
          WHERE resource_id = ${outcomes[0]!.callId}`
        assert.deepStrictEqual(entry?.["action"], "gen_ai.chat")
        assert.deepStrictEqual(entry?.["actor"], `key:${key}`)
        assert.deepInclude(entry?.["payload"] as object, {
          cost: "0.000000001",
          model: "gpt-4o-mini",
          status: "success"
        })
      }).pipe(Effect.provide(ledger(directory)))
      assert.deepStrictEqual(readdirSync(join(directory, "w0")), [], "a drained journal leaves nothing")
    }).pipe(Effect.provide(underUsage([], seen).pipe(Layer.provideMerge(testDatabase()))))
  })

  it.effect("keeps each tenant's rows in its own schema, and finds a key in whichever it is", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      yield* Effect.gen(function* () {
        const usage = yield* UsageLedger
        const [a, b] = [uuidv7(Date.now()), uuidv7(Date.now())]
        yield* usage.record(outcomeOf(a, 7n, { tenant: "acme" }))
        yield* usage.record(outcomeOf(b, 11n, { tenant: "beta_2" }))
        yield* usage.record(outcomeOf(b, 1n))
        assert.strictEqual((yield* usage.lifetime(a)).spend, 7n)
        assert.deepStrictEqual(
          yield* usage.spendOfKeys([a, b]),
          new Map([
            [a, 7n],
            [b, 11n]
          ])
        )
        assert.strictEqual((yield* usage.lifetime(null)).spend, 19n)
        yield* assertBooks("acme", `"tenant_acme"`, 1, 7n)
        yield* assertBooks("beta_2", `"tenant_beta_2"`, 1, 11n)
        yield* assertBooks("", "public", 1, 1n)
      }).pipe(Effect.provide(ledger(directory)))
    }).pipe(Effect.provide(underUsage(["beta_2", "acme"]).pipe(Layer.provideMerge(testDatabase()))))
  )

  it.effect("puts aside what can never be stored and writes the rest", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      yield* Effect.gen(function* () {
        const usage = yield* UsageLedger
        const key = uuidv7(Date.now())
        const good = Array.from({ length: 40 }, () => outcomeOf(key, 1n))
        const strayTenant = outcomeOf(key, 3n, { tenant: "nobody" })
        const tooMany = outcomeOf(key, 2n, { usage: { ...good[0]!.usage, input: 2 ** 40 } })
        yield* Effect.forEach([...good.slice(0, 20), strayTenant, tooMany, ...good.slice(20)], usage.record, {
          concurrency: "unbounded",
          discard: true
        })
        yield* usage.flush
        yield* assertBooks("", "public", 40, 40n)
        // The money was spent, so the budget knows of it all the same.
        assert.strictEqual(yield* accountsSpent, 45n)
        const rejected = readFileSync(join(directory, "rejected.jsonl"), "utf8").trimEnd().split("\n")
        assert.strictEqual(rejected.length, 2)
        assert.isTrue(rejected.some((line) => line.includes(tooMany.callId)))
        assert.isTrue(rejected.some((line) => line.includes(strayTenant.callId) && line.includes("not provisioned")))
      }).pipe(Effect.provide(ledger(directory)))
    }).pipe(Effect.provide(underUsage(["acme"]).pipe(Layer.provideMerge(testDatabase()))))
  )

  it.live("two writers at once never deadlock, and the sums agree", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      const keys = Array.from({ length: 30 }, () => uuidv7(Date.now()))
      const tenants = ["acme", "beta", ""]
      const one = (worker: string) =>
        Effect.gen(function* () {
          const usage = yield* UsageLedger
          for (let round = 0; round < 12; round++) {
            yield* Effect.forEach(
              Array.from({ length: 250 }, (_, index) =>
                outcomeOf(keys[(index * 7 + round) % 30]!, 3n, {
                  tenant: tenants[index % 3]!,
                  model: `model-${(index * 11) % 5}`
                })
              ),
              usage.record,
              { concurrency: "unbounded", discard: true }
            )
          }
          yield* usage.flush
        }).pipe(Effect.provide(Layer.fresh(ledger(directory, worker))))
      yield* Effect.all([one("w0"), one("w1"), one("w2")], { concurrency: "unbounded" })
      yield* assertBooks("acme", `"tenant_acme"`, 3 * 12 * 84, BigInt(3 * 3 * 12 * 84))
      yield* assertBooks("beta", `"tenant_beta"`, 3 * 12 * 83, BigInt(3 * 3 * 12 * 83))
      yield* assertBooks("", "public", 3 * 12 * 83, BigInt(3 * 3 * 12 * 83))
      assert.strictEqual(yield* accountsSpent, 27_000n)
      assert.isFalse(existsSync(join(directory, "rejected.jsonl")))
      const sql = yield* SqlClient.SqlClient
      const [row] = yield* sql`SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`
      assert.strictEqual(row?.["deadlocks"], 0n)
    }).pipe(Effect.provide(underUsage(["acme", "beta"]).pipe(Layer.provideMerge(testDatabase({ poolSize: 8 })))))
  )

  it.live("replays what dead workers left, leaves the living alone, and passes over a torn line", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      const { encodeOutcome } = yield* Effect.promise(() => import("#layers/usage/outcome-line.ts"))
      const { mkdirSync, writeFileSync } = yield* Effect.promise(() => import("node:fs"))
      const key = uuidv7(Date.now())
      const outcomes = Array.from({ length: 10 }, () => outcomeOf(key, 2n))
      const lines = outcomes.map((outcome) => lineOf(encodeOutcome(outcome)))
      for (const worker of ["dead", "alive"]) mkdirSync(join(directory, worker))
      const text = lines.slice(0, 6).join("") + lines[6]!.slice(0, 40)
      writeFileSync(join(directory, "dead", "000000000001.journal"), text)
      writeFileSync(join(directory, "alive", "000000000001.journal"), lines[9]!)
      const replay = UsageLedgerPostgres.replayJournals(directory, (worker) => worker === "alive")
      assert.strictEqual(yield* replay, 6)
      yield* assertBooks("", "public", 6, 12n)
      assert.deepStrictEqual(readdirSync(directory), ["alive"])

      // The same lines again, as after a kill between the commit and the checkpoint, and one damaged in the middle.
      mkdirSync(join(directory, "dead"))
      const damaged = lines[1]!.replace("gpt-4o", "gpt-5o")
      writeFileSync(join(directory, "dead", "000000000001.journal"), lines[0]! + damaged + lines[7]!)
      assert.strictEqual(yield* replay, 2)
      yield* assertBooks("", "public", 7, 14n)
      assert.include(readFileSync(join(directory, "rejected.jsonl"), "utf8"), outcomes[1]!.callId)
    }).pipe(Effect.provide(underUsage().pipe(Layer.provideMerge(testDatabase()))))
  )

  it.live(
    "without PostgreSQL: records go on until the journal is full, then no call is admitted; nothing is lost",
    () =>
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory
        const outcomes = Array.from({ length: 3000 }, () => outcomeOf(null, 1n))
        const nowhere = DatabasePostgres.layer({ poolSize: 2 }).pipe(
          Layer.provide(
            Layer.succeed(DatabaseServer, {
              url: Redacted.make("postgres://nobody@127.0.0.1:1/none"),
              kind: "external" as const,
              state: Effect.succeed("ready" as const)
            })
          )
        )
        const tenants = Layer.succeed(Tenants, { slugs: [], dormant: true, schemaOf: () => Effect.succeed("public") })
        const budgets = Layer.mock(BudgetLedger, {
          tryReserve: () => undefined,
          posted: () => {},
          quota: () => ({ requests: undefined, tokens: undefined, budgetRemaining: undefined })
        })
        const recorded = yield* Effect.gen(function* () {
          const usage = yield* UsageLedger
          let count = 0
          while (!usage.isFull()) yield* usage.record(outcomes[count++]!)
          assert.strictEqual((yield* Effect.flip(usage.flush)).code, "database_unavailable")
          assert.strictEqual((yield* Effect.flip(usage.lifetime(null))).code, "database_unavailable")
          return count
        }).pipe(
          Effect.provide(
            UsageLedgerPostgres.layer({ directory, worker: "w0", limitBytes: 2 ** 20, flushLimit: "100 millis" }).pipe(
              Layer.provide(Layer.mergeAll(budgets, OutboxPostgres.layer, ProvenancePostgres.layer)),
              Layer.provide(tenants),
              Layer.provide(nowhere)
            )
          )
        )
        assert.isAbove(recorded, 1000)
        yield* Effect.gen(function* () {
          const usage = yield* UsageLedger
          yield* usage.flush
          assert.isFalse(usage.isFull())
          yield* assertBooks("", "public", recorded, BigInt(recorded))
        }).pipe(
          Effect.provide(ledger(directory).pipe(Layer.provideMerge(underUsage()), Layer.provideMerge(testDatabase())))
        )
      })
  )
})
