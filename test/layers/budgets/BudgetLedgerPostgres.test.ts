import { assert, describe, layer } from "@effect/vitest"
import { Effect, Fiber, Result, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { Window } from "#domain/limits.ts"
import type { Charge, Reservation } from "#services/budgets/BudgetLedger.ts"
import {
  account,
  budget,
  demand,
  record,
  requests,
  startProcess,
  type TestProcess,
  tokens,
  tried
} from "#test/layers/budgets/ledgers.ts"
import { testDatabase } from "#test/support/Postgres.ts"

const granted = (results: ReadonlyArray<Reservation | string>) =>
  results.filter((result): result is Reservation => typeof result !== "string")

const processes = (count: number, name: string) =>
  Effect.forEach(
    Array.from({ length: count }, (_, n) => `${name}:${n}`),
    (holder) => startProcess(holder)
  )

/** Forgets the processes of other tests, which would be asked for their shares. */
const onlyProcess = Effect.flatMap(SqlClient.SqlClient, (sql) => sql`DELETE FROM ledger_holders`)

const eventually = <E, R>(condition: Effect.Effect<boolean, E, R>) =>
  condition.pipe(
    Effect.flatMap((done) => (done ? Effect.void : Effect.fail("not yet" as const))),
    Effect.retry({ schedule: Schedule.spaced("20 millis"), times: 300 })
  )

describe("BudgetLedgerPostgres", () => {
  layer(testDatabase({ poolSize: 3 }), { excludeTestServices: true })("in real time", (it) => {
    for (const count of [1, 3]) {
      it.effect(`lets exactly 5 of 12 concurrent calls pass at rpm 5, with ${count} process(es)`, () =>
        Effect.gen(function* () {
          const all = yield* processes(count, `rpm${count}`)
          const limits = [requests(`rpm${count}`, 5n)]
          const results = yield* Effect.forEach(
            Array.from({ length: 12 }, (_, n) => all[n % count] as TestProcess),
            (process) => tried(process, limits, demand(0n)),
            { concurrency: "unbounded" }
          )
          assert.strictEqual(granted(results).length, 5)
          assert.deepStrictEqual([...new Set(results.filter((r) => typeof r === "string"))], ["rate_limit_exceeded"])
          // A request stays counted, whatever became of it.
          for (const reservation of granted(results)) reservation.release()
          assert.strictEqual(yield* tried(all[0] as TestProcess, limits, demand(0n)), "rate_limit_exceeded")
          assert.strictEqual(all[0]?.ledger.quota(limits).requests?.remaining, 0)
        })
      )

      it.effect(`lets exactly 7 of 20 concurrent calls into a budget for 7, with ${count} process(es)`, () =>
        Effect.gen(function* () {
          const all = yield* processes(count, `money${count}`)
          const limits = [budget(`money${count}`, 75n)]
          const results = yield* Effect.forEach(
            Array.from({ length: 20 }, (_, n) => all[n % count] as TestProcess),
            (process) => tried(process, limits, demand(10n)),
            { concurrency: "unbounded" }
          )
          assert.strictEqual(granted(results).length, 7)
          assert.deepStrictEqual([...new Set(results.filter((r) => typeof r === "string"))], ["budget_exceeded"])
        })
      )
    }

    it.effect("reserves on every limit or on none", () =>
      Effect.gen(function* () {
        yield* onlyProcess
        const process = yield* startProcess("chain")
        const limits = [requests("chain", 10n), budget("chain", 100n), tokens("chain", 50n)]
        assert.strictEqual(yield* tried(process, limits, demand(10n, 60)), "token_limit_exceeded")
        const first = yield* process.ledger.reserve(limits, demand(100n, 50))
        assert.strictEqual(process.ledger.quota(limits).requests?.remaining, 9)
        assert.strictEqual(yield* tried(process, limits, demand(1n, 0)), "budget_exceeded")
        first.release()
        first.release()
        const second = yield* process.ledger.reserve(limits, demand(100n, 50))
        // What was not consumed comes back, once.
        const charges = second.settle({ nanos: 40n, tokens: 20 })
        assert.deepStrictEqual(second.settle({ nanos: 1n, tokens: 1 }), [])
        second.release()
        assert.deepStrictEqual(charges, [{ account: "budget:key:chain", windowStart: 0, nanos: 40n }])
        const returned = limits.slice(1)
        assert.isUndefined(process.ledger.tryReserve(returned, demand(61n, 30)))
        assert.isUndefined(process.ledger.tryReserve(returned, demand(60n, 31)))
        const rest = process.ledger.tryReserve(returned, demand(60n, 30))
        assert.isDefined(rest)
        rest.release()
        const quota = process.ledger.quota(limits)
        assert.strictEqual(quota.budgetRemaining, 60n)
        assert.strictEqual(quota.requests?.remaining, 8)
        assert.strictEqual(quota.tokens?.remaining, 30)
      })
    )

    it.effect("a limit of 0 refuses everything, and says whose it is", () =>
      Effect.gen(function* () {
        const { ledger } = yield* startProcess("zero")
        const refused = (limit: ReturnType<typeof budget>) => Effect.flip(ledger.reserve([limit], demand(0n, 0)))
        const money = yield* refused(budget("zero", 0n))
        assert.deepInclude(money, {
          code: "budget_exceeded",
          message: "The budget of the API key does not cover this call."
        })
        assert.isFalse("retryAfter" in money)
        assert.strictEqual((yield* refused(requests("zero", 0n))).code, "rate_limit_exceeded")
        assert.deepInclude(yield* refused(tokens("zero", 0n)), {
          code: "token_limit_exceeded",
          message: "The token rate limit of the team is reached."
        })
        // A budget that is spent does not forbid what costs nothing.
        const spent = [budget("spent", 5n)]
        ;(yield* ledger.reserve(spent, demand(5n))).settle({ nanos: 5n, tokens: 0 })
        yield* ledger.reserve(spent, demand(0n))
      })
    )

    it.effect("spends exactly, also what an upstream reports above its reservation", () =>
      Effect.gen(function* () {
        const process = yield* startProcess("exact")
        const limits = [budget("exact", 100n)]
        const charges: Array<Charge> = []
        charges.push(...(yield* process.ledger.reserve(limits, demand(90n))).settle({ nanos: 130n, tokens: 0 }))
        assert.strictEqual(yield* tried(process, limits, demand(1n)), "budget_exceeded")
        assert.strictEqual(process.ledger.quota(limits).budgetRemaining, 0n)
        // A transaction that is rolled back and made again counts once.
        yield* Effect.ignore(
          process.sql.withTransaction(Effect.andThen(process.ledger.post(charges), Effect.fail("no")))
        )
        yield* record(process, charges)
        assert.strictEqual((yield* account("budget:key:exact")).spent, 130n)
        assert.strictEqual(yield* process.ledger.spent(limits[0] as (typeof limits)[0]), 130n)
        const raised = [budget("exact", 150n)]
        ;(yield* process.ledger.reserve(raised, demand(20n))).release()
        yield* Effect.sleep("110 millis")
        assert.strictEqual(yield* tried(process, raised, demand(21n)), "budget_exceeded")
        yield* process.stop
        assert.deepStrictEqual(yield* account("budget:key:exact"), { spent: 130n, leased: 0n })
      })
    )

    it.effect("never overspends over three processes, and every share comes back", () =>
      Effect.gen(function* () {
        const all = yield* processes(3, "random")
        const most = 100_000n
        const limits = [budget("random", most), tokens("random", 1_000_000n)]
        let seed = 7
        const random = (below: number) => {
          seed = (Math.imul(seed, 1_103_515_245) + 12_345) & 0x7fffffff
          return seed % below
        }
        let spent = 0n
        let reserved = 0n
        let passed = 0
        const call = Effect.fnUntraced(function* (process: TestProcess) {
          const worst = BigInt(1 + random(900))
          const held = yield* tried(process, limits, demand(worst, 10))
          if (typeof held === "string") return
          passed++
          reserved += worst
          assert.isAtMost(Number(spent + reserved), Number(most))
          if (random(3) === 0) yield* Effect.sleep(random(4))
          reserved -= worst
          if (random(5) === 0) return held.release()
          const actual = BigInt(random(Number(worst) + 1))
          spent += actual
          assert.isAtMost(Number(spent + reserved), Number(most))
          const charges = held.settle({ nanos: actual, tokens: 3 })
          if (charges.length > 0) yield* record(process, charges)
        })
        yield* Effect.forEach(
          Array.from({ length: 900 }, (_, n) => all[n % 3] as TestProcess),
          call,
          { concurrency: 24, discard: true }
        )
        assert.isAbove(passed, 200)
        assert.isAbove(Number(spent), 90_000)
        yield* Effect.forEach(all, (process) => process.stop)
        assert.deepStrictEqual(yield* account("budget:key:random"), { spent, leased: 0n })
        const sql = yield* SqlClient.SqlClient
        const [rate] = yield* sql`SELECT used FROM ledger_rates WHERE account = 'tokens:team:random'`
        assert.isAtMost(Number(rate?.["used"]), passed * 3)
      })
    )

    it.effect("does not refuse while another process holds the money and does not use it", () =>
      Effect.gen(function* () {
        yield* onlyProcess
        const [a, b] = (yield* processes(2, "idle")) as [TestProcess, TestProcess]
        const limits = [budget("idle", 1000n)]
        ;(yield* a.ledger.reserve(limits, demand(10n))).release()
        assert.isAbove(Number((yield* account("budget:key:idle")).leased), 10)
        const began = performance.now()
        const whole = yield* b.ledger.reserve(limits, demand(1000n))
        // The other process answers; its silence would have cost a quarter of a second.
        assert.isBelow(performance.now() - began, 200)
        assert.strictEqual(yield* tried(a, limits, demand(1n)), "budget_exceeded")
        // Now that it is scarce, what comes free here goes back at once.
        whole.release()
        yield* eventually(Effect.map(tried(a, limits, demand(1000n)), (held) => typeof held !== "string"))
      })
    )

    it.effect("two processes that each hold half of what both want do not both refuse", () =>
      Effect.gen(function* () {
        yield* onlyProcess
        const pair = (yield* processes(2, "half")) as [TestProcess, TestProcess]
        const limits = [budget("half", 100n)]
        const small = yield* Effect.forEach(pair, (process) => process.ledger.reserve(limits, demand(50n)))
        for (const held of small) held.release()
        const began = performance.now()
        const both = yield* Effect.forEach(pair, (process) => tried(process, limits, demand(80n)), {
          concurrency: "unbounded"
        })
        assert.strictEqual(granted(both).length, 1)
        assert.isBelow(performance.now() - began, 200)
      })
    )

    it.effect("returns idle shares by itself", () =>
      Effect.gen(function* () {
        const process = yield* startProcess("lazy", { idleAfter: "50 millis" })
        const limits = [budget("lazy", 1_000_000n), requests("lazy", 1000n)]
        ;(yield* process.ledger.reserve(limits, demand(10n))).release()
        const sql = yield* SqlClient.SqlClient
        yield* eventually(Effect.map(account("budget:key:lazy"), ({ leased }) => leased === 0n))
        yield* eventually(
          Effect.map(
            sql`SELECT used FROM ledger_rates WHERE account = 'requests:key:lazy'`,
            ([row]) => row?.["used"] === 1n
          )
        )
      })
    )

    it.effect(
      "a killed process's reservations come back when its next life reclaims, its finished calls stay charged",
      () =>
        Effect.gen(function* () {
          const limits = [budget("killed", 100n)]
          const first = yield* startProcess("worker:0")
          const charges = (yield* first.ledger.reserve(limits, demand(30n))).settle({ nanos: 25n, tokens: 0 })
          yield* first.ledger.reserve(limits, demand(70n))
          yield* first.kill
          const next = yield* startProcess("worker:0")
          assert.strictEqual(yield* tried(next, limits, demand(50n)), "budget_exceeded")
          // The journal's replay, then the reclaim.
          yield* record(next, charges)
          yield* next.reclaim("worker:0")
          yield* Effect.sleep("110 millis")
          yield* next.ledger.reserve(limits, demand(75n))
          assert.strictEqual(yield* tried(next, limits, demand(1n)), "budget_exceeded")
        })
    )

    it.effect("a dead process's shares expire, and a process that is cut off stops using its own before that", () =>
      Effect.gen(function* () {
        const limits = [budget("expiry", 100n)]
        const [a, b] = yield* Effect.all([
          startProcess("expiry:a", { leaseTtl: "800 millis" }),
          startProcess("expiry:b", { leaseTtl: "800 millis" })
        ])
        ;(yield* a.ledger.reserve(limits, demand(80n))).release()
        yield* a.kill
        // Without a database the share lasts, and no longer.
        ;(yield* a.ledger.reserve(limits, demand(80n))).release()
        assert.notStrictEqual(typeof (yield* tried(a, limits, demand(80n))), "string")
        assert.strictEqual(yield* tried(b, limits, demand(80n)), "budget_exceeded")
        let stopped = 0
        yield* eventually(
          Effect.gen(function* () {
            if (stopped === 0 && typeof (yield* tried(a, limits, demand(1n))) === "string") stopped = performance.now()
            return typeof (yield* tried(b, limits, demand(80n))) !== "string"
          })
        )
        assert.isAbove(stopped, 0)
        assert.strictEqual(yield* tried(a, limits, demand(1n)), "database_unavailable")
      })
    )

    it.effect("a process whose leases expired comes back with what its calls occupy", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const process = yield* startProcess("phoenix", { leaseTtl: "1 second" })
        const limits = [budget("phoenix", 100n)]
        const held = yield* process.ledger.reserve(limits, demand(40n))
        ;(yield* process.ledger.reserve(limits, demand(40n))).release()
        yield* sql`UPDATE ledger_holders SET expires_at = clock_timestamp() - interval '1 second' WHERE name = 'phoenix'`
        yield* eventually(Effect.map(account("budget:key:phoenix"), ({ leased }) => leased === 40n))
        const charges = held.settle({ nanos: 40n, tokens: 0 })
        yield* process.ledger.reserve(limits, demand(60n))
        yield* record(process, charges)
        assert.deepStrictEqual(yield* account("budget:key:phoenix"), { spent: 40n, leased: 60n })
      })
    )

    it.effect("after an outage for all, the first one back waits for the shares of those who are not", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const ttl = { leaseTtl: "800 millis" } as const
        const [a, b] = yield* Effect.all([startProcess("outage:a", ttl), startProcess("outage:b", ttl)])
        const limits = [budget("outage", 100n)]
        yield* a.ledger.reserve(limits, demand(80n))
        yield* a.kill
        yield* sql`UPDATE ledger_holders SET expires_at = clock_timestamp() - interval '1 second'
          WHERE name IN ('outage:a', 'outage:b')`
        yield* eventually(
          Effect.map(
            sql`SELECT 1 FROM ledger_holders WHERE name = 'outage:b' AND expires_at > clock_timestamp()`,
            (rows) => rows.length === 1
          )
        )
        assert.strictEqual(yield* tried(b, limits, demand(30n)), "budget_exceeded")
        yield* eventually(Effect.map(tried(b, limits, demand(30n)), (held) => typeof held !== "string"))
      })
    )

    it.effect("a lowered limit takes effect at once, a raised one with the next lease", () =>
      Effect.gen(function* () {
        const process = yield* startProcess("changed")
        ;(yield* process.ledger.reserve([budget("changed", 1000n)], demand(10n))).release()
        const held = process.ledger.tryReserve([budget("changed", 1000n)], demand(50n))
        assert.isDefined(held)
        held.release()
        assert.strictEqual(yield* tried(process, [budget("changed", 5n)], demand(10n)), "budget_exceeded")
        ;(yield* process.ledger.reserve([budget("changed", 5n)], demand(5n))).release()
        ;(yield* process.ledger.reserve([budget("changed", 2000n)], demand(2000n))).release()
      })
    )

    it.effect("asks once what was spent before an account's first row", () =>
      Effect.gen(function* () {
        const asked: Array<string> = []
        const options = {
          initialSpent: (limit: { readonly account: string }) =>
            Effect.sync(() => {
              asked.push(limit.account)
              return 60n
            })
        }
        const [a, b] = yield* Effect.all([startProcess("before:a", options), startProcess("before:b", options)])
        const limits = [budget("before", 100n)]
        assert.strictEqual(yield* tried(a, limits, demand(41n)), "budget_exceeded")
        yield* a.ledger.reserve(limits, demand(20n))
        yield* b.ledger.reserve(limits, demand(20n))
        assert.strictEqual(yield* tried(b, limits, demand(1n)), "budget_exceeded")
        assert.deepStrictEqual(asked, ["budget:key:before"])
      })
    )

    it.effect("an interrupted caller leaves nothing reserved", () =>
      Effect.gen(function* () {
        const process = yield* startProcess("gone")
        const limits = [budget("gone", 100n)]
        const fibers = yield* Effect.forEach(Array.from({ length: 20 }), () =>
          Effect.forkChild(Effect.asVoid(process.ledger.reserve(limits, demand(100n))))
        )
        yield* Fiber.interruptAll(fibers)
        yield* Effect.sleep("110 millis")
        const rest = yield* Effect.forEach(fibers, Fiber.await)
        const passed = rest.filter((exit) => exit._tag === "Success").length
        if (passed === 0) yield* process.ledger.reserve(limits, demand(100n))
      })
    )

    it.effect("sweeps windows that ended long ago and keeps the others", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        yield* sql`INSERT INTO ledger_accounts (account, window_start, window_end, spent)
          VALUES ('budget:key:swept', 1, 2, 3), ('budget:key:swept', 0, NULL, 4)`
        yield* sql`INSERT INTO ledger_rates VALUES ('requests:key:swept', 1, 2, 3)`
        const { make } = yield* Effect.promise(() => import("#layers/budgets/LedgerStatements.ts"))
        const statements = yield* make("sweeper", 60_000)
        assert.isFalse(yield* statements.sweep(Date.now()))
        assert.deepStrictEqual(yield* account("budget:key:swept"), { spent: 4n, leased: 0n })
        assert.strictEqual((yield* sql`SELECT 1 FROM ledger_rates WHERE account = 'requests:key:swept'`).length, 0)
      })
    )
  })

  layer(testDatabase({ poolSize: 3 }))("by a test's clock", (it) => {
    it.effect("starts calendar windows and minutes anew, by the clock alone", () =>
      Effect.gen(function* () {
        const process = yield* startProcess("windows")
        yield* TestClock.adjust("10 seconds")
        const daily = [budget("daily", 100n, Window.Calendar({ unit: "m", count: 5 }))]
        const minute = [requests("windows", 1n)]
        const late = yield* process.ledger.reserve(daily, demand(100n))
        yield* process.ledger.reserve(minute, demand(0n))
        const refused = yield* Effect.flip(process.ledger.reserve(daily, demand(1n)))
        assert.deepInclude(refused, { code: "budget_exceeded", retryAfter: 290 })
        assert.deepInclude(yield* Effect.flip(process.ledger.reserve(minute, demand(0n))), {
          code: "rate_limit_exceeded",
          retryAfter: 60
        })
        // The minute began with its first use.
        yield* TestClock.adjust("59 seconds")
        assert.isTrue(Result.isFailure(yield* Effect.result(process.ledger.reserve(minute, demand(0n)))))
        yield* TestClock.adjust("1 second")
        yield* process.ledger.reserve(minute, demand(0n))
        yield* TestClock.adjust("230 seconds")
        const next = yield* process.ledger.reserve(daily, demand(100n))
        // Both calls are charged to the window that they were reserved in.
        const charges = [...late.settle({ nanos: 70n, tokens: 0 }), ...next.settle({ nanos: 80n, tokens: 0 })]
        assert.deepStrictEqual(
          charges.map((charge) => [charge.windowStart, charge.nanos]),
          [
            [0, 70n],
            [300_000, 80n]
          ]
        )
        yield* record(process, charges)
        assert.strictEqual(yield* process.ledger.spent(daily[0] as (typeof daily)[0]), 80n)
        yield* process.stop
        assert.deepStrictEqual(yield* account("budget:key:daily"), { spent: 150n, leased: 0n })
      })
    )
  })
})
