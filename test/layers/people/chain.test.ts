import { assert, describe, it } from "@effect/vitest"
import { Clock, Context, Effect, Layer, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import type { GatewayError } from "#domain/errors.ts"
import { windowAt, Window } from "#domain/limits.ts"
import { BudgetTiers } from "#services/budgets/BudgetTiers.ts"
import { PlanTiers } from "#services/budgets/PlanTiers.ts"
import { SoftBudgets } from "#services/budgets/SoftBudgets.ts"
import { KeyStore } from "#services/keys/KeyStore.ts"
import { CustomerPolicies } from "#services/people/CustomerPolicies.ts"
import { Customers } from "#services/people/Customers.ts"
import { Organizations } from "#services/people/Organizations.ts"
import { Teams } from "#services/people/Teams.ts"
import { Users } from "#services/people/Users.ts"
import { draft, everything } from "#test/support/keys.ts"
import { administrator, master, peopleProcess } from "#test/support/people.ts"
import { databaseGate } from "#test/support/DatabaseGate.ts"
import { freshDatabase } from "#test/support/Postgres.ts"

const startOn = (url: Parameters<typeof peopleProcess>[0], slugs: ReadonlyArray<string> = []) =>
  Effect.map(Layer.build(peopleProcess(url, slugs)), (context) => ({
    keys: Context.get(context, KeyStore),
    users: Context.get(context, Users),
    teams: Context.get(context, Teams),
    organizations: Context.get(context, Organizations),
    customers: Context.get(context, Customers),
    policies: Context.get(context, CustomerPolicies),
    tiers: Context.get(context, BudgetTiers),
    plans: Context.get(context, PlanTiers),
    soft: Context.get(context, SoftBudgets),
    sql: Context.get(context, SqlClient.SqlClient)
  }))

const start = (slugs: ReadonlyArray<string> = []) => Effect.flatMap(freshDatabase(), (url) => startOn(url, slugs))

const codeOf = <A>(effect: Effect.Effect<A, GatewayError>) =>
  Effect.map(Effect.flip(effect), (error) => `${error.status} ${error.code}`)

/** Tries again until it holds, at most a second of real time: what the specification allows. */
const withinASecond = <E>(check: Effect.Effect<boolean, E>) =>
  Effect.filterOrFail(
    check,
    (holds) => holds,
    () => "not within a second"
  ).pipe(
    Effect.retry(Schedule.spaced("5 millis").pipe(Schedule.upTo({ duration: "1 second" }))),
    Effect.provideService(Clock.Clock, Clock.Clock.defaultValue())
  )

type Limits = ReadonlyArray<{ readonly account: string; readonly limit: bigint }>
const shown = (limits: Limits) => Object.fromEntries(limits.map(({ account, limit }) => [account, limit]))
const dollars = (amount: number) => BigInt(amount) * 1_000_000_000n

describe("The chain of a key", () => {
  it.effect("binds the limits of user, team and organization, each its own and its tier's", () =>
    Effect.gen(function* () {
      const { keys, organizations, teams, tiers, users } = yield* start()
      yield* tiers.create({ budgetId: "monthly", maxBudget: dollars(5), budgetDuration: "1mo", rpmLimit: 7 }, master)
      yield* tiers.create({ budgetId: "endless", maxBudget: dollars(2), tpmLimit: 50 }, master)
      const user = yield* users.create({ name: "U", maxBudget: dollars(3), budgetId: "endless", models: [] }, master)
      const organization = yield* organizations.create(
        { alias: "O", maxBudget: dollars(9), models: ["a", "b"] },
        master
      )
      const team = yield* teams.create(
        {
          alias: "T",
          organizationId: organization,
          maxBudget: dollars(4),
          rpmLimit: 9,
          budgetId: "monthly",
          models: ["b", "c"]
        },
        master
      )
      const { key, plaintext } = yield* keys.generate({
        ...draft,
        userId: user.id,
        teamId: team,
        budgetId: "monthly",
        rpmLimit: 3
      })
      const policy = yield* keys.authenticate(plaintext)
      assert.strictEqual(policy.organizationId, organization, "the team's")
      assert.deepStrictEqual([...(policy.models ?? [])], ["b"])
      assert.deepStrictEqual(shown(policy.limits), {
        [`requests:key:${key.id}`]: 3n,
        [`budget:key:${key.id}@1mo`]: dollars(5),
        [`budget:user:${user.id}`]: dollars(2),
        [`tokens:user:${user.id}`]: 50n,
        [`budget:team:${team}`]: dollars(4),
        [`budget:team:${team}@1mo`]: dollars(5),
        [`requests:team:${team}`]: 7n,
        [`budget:organization:${organization}`]: dollars(9)
      })
      const monthly = policy.limits.find(({ account }) => account.endsWith("@1mo"))
      assert.deepStrictEqual(monthly?.window, Window.Calendar({ unit: "mo", count: 1 }))
    })
  )

  it.effect("never turns lists without a common model into all models", () =>
    Effect.gen(function* () {
      const { keys, teams } = yield* start()
      const teamId = yield* teams.create({ alias: "T", models: ["a"] }, master)
      const { plaintext } = yield* keys.generate({ ...draft, teamId, models: ["b"] })
      assert.deepStrictEqual([...((yield* keys.authenticate(plaintext)).models ?? ["all"])], [])
    })
  )

  it.effect("follows every change of an owner or a tier, in every process, within a second", () =>
    Effect.gen(function* () {
      const url = yield* freshDatabase()
      const here = yield* startOn(url)
      const there = yield* startOn(url)
      yield* here.tiers.create({ budgetId: "t", maxBudget: dollars(5) }, master)
      const organizationId = yield* here.organizations.create({ alias: "O", budgetId: "t" }, master)
      const teamId = yield* here.teams.create({ alias: "T", organizationId }, master)
      const user = yield* here.users.create({ name: "U" }, master)
      const { plaintext } = yield* here.keys.generate({ ...draft, teamId, userId: user.id })
      const limitsIn = (process: typeof here) =>
        Effect.map(process.keys.authenticate(plaintext), ({ limits }) => shown(limits))
      const refusedIn = (process: typeof here) =>
        Effect.match(process.keys.authenticate(plaintext), { onFailure: () => true, onSuccess: () => false })
      const followed = (
        change: Effect.Effect<unknown, GatewayError>,
        check: (process: typeof here) => Effect.Effect<boolean, unknown>
      ) =>
        Effect.gen(function* () {
          yield* limitsIn(there)
          yield* change
          assert.isTrue(yield* check(here), "at once where it was done")
          yield* withinASecond(check(there))
        })
      const account = `budget:organization:${organizationId}`
      yield* followed(here.tiers.update("t", { maxBudget: dollars(6) }, master), (process) =>
        Effect.map(limitsIn(process), (limits) => limits[account] === dollars(6))
      )
      yield* followed(here.organizations.update(organizationId, { maxBudget: dollars(1) }, master), (process) =>
        Effect.map(limitsIn(process), (limits) => limits[account] === dollars(1))
      )
      yield* followed(here.users.update(user.id, { tpmLimit: 4 }, master), (process) =>
        Effect.map(limitsIn(process), (limits) => limits[`tokens:user:${user.id}`] === 4n)
      )
      yield* followed(here.teams.setBlocked(teamId, true, master), refusedIn)
      yield* here.teams.setBlocked(teamId, false, master)
      assert.isFalse(yield* refusedIn(here))
      yield* withinASecond(Effect.map(refusedIn(there), (refused) => !refused))
      yield* followed(here.teams.remove(teamId, master), refusedIn)
    })
  )

  it.effect("refuses the keys of who was deleted, until they are given to somebody else", () =>
    Effect.gen(function* () {
      const { keys, organizations, sql, teams, users } = yield* start()
      const user = yield* users.create({ name: "U" }, master)
      const organizationId = yield* organizations.create({ alias: "O" }, master)
      const teamId = yield* teams.create({ alias: "T", organizationId }, master)
      const tokens = yield* Effect.forEach(
        [{ userId: user.id }, { teamId }, { organizationId }, { userId: "never a user", teamId: "nor a team" }],
        (owner) => Effect.map(keys.generate({ ...draft, ...owner }), ({ plaintext }) => plaintext)
      )
      const refused = () =>
        Effect.forEach(tokens, (token) =>
          Effect.match(keys.authenticate(token), { onFailure: () => 1, onSuccess: () => 0 })
        )
      assert.deepStrictEqual(yield* refused(), [0, 0, 0, 0])
      yield* users.remove(user.id, master)
      assert.deepStrictEqual(yield* refused(), [1, 0, 0, 0])
      // The team's keys are the organization's too.
      yield* organizations.remove(organizationId, master)
      assert.deepStrictEqual(yield* refused(), [1, 1, 1, 0])
      const [row] = yield* sql<{ id: string }>`SELECT id FROM api_keys WHERE team_id = ${teamId}`
      const other = yield* teams.create({ alias: "Other" }, master)
      yield* keys.update({ id: row!.id }, { teamId: other, actor: "a" }, everything)
      assert.deepStrictEqual(yield* refused(), [1, 0, 1, 0])
    })
  )

  it.effect("lets no tenant's owner bind another tenant's key", () =>
    Effect.gen(function* () {
      const { keys, teams, tiers } = yield* start(["acme", "beta"])
      const beta = administrator("tenant_admin", "beta")
      const teamId = yield* teams.create({ alias: "T", rpmLimit: 0 }, beta)
      yield* tiers.create({ budgetId: "t", rpmLimit: 0 }, beta)
      const { plaintext } = yield* keys.generate({ ...draft, tenant: "acme", teamId })
      yield* teams.setBlocked(teamId, true, beta)
      assert.deepStrictEqual((yield* keys.authenticate(plaintext)).limits, [])
      assert.strictEqual(yield* codeOf(keys.generate({ ...draft, tenant: "acme", budgetId: "t" })), "400 invalid_value")
    })
  )
})

describe("Customers' policies", () => {
  it.effect("bind the end users of their scope, and follow changes in every process", () =>
    Effect.gen(function* () {
      const url = yield* freshDatabase()
      const here = yield* startOn(url, ["acme"])
      const there = yield* startOn(url, ["acme"])
      const acme = administrator("tenant_admin", "acme")
      const endUser = { tenant: "acme", organizationId: null, id: "e" }
      assert.strictEqual(here.policies.known(endUser), null, "a tenant without customers asks nobody")
      const organizationId = yield* here.organizations.create({ alias: "O" }, acme)
      yield* here.tiers.create({ budgetId: "daily", maxBudget: dollars(1), budgetDuration: "1d" }, acme)
      const id = yield* here.customers.create({ endUserId: "e", models: ["a"], budgetId: "daily" }, acme)
      const org = administrator("org_admin", "acme", organizationId)
      const own = yield* here.customers.create({ endUserId: "e", rpmLimit: 2 }, org)
      assert.isUndefined(here.policies.known(endUser), "the tenant has customers now")
      // The echo of this process's own change may drop it once more.
      yield* withinASecond(Effect.map(here.policies.find(endUser), (policy) => here.policies.known(endUser) === policy))
      const policy = yield* here.policies.find(endUser)
      assert.deepStrictEqual(shown(policy?.limits ?? []), { [`budget:customer:${id}@1d`]: dollars(1) })
      assert.deepStrictEqual([...(policy?.models ?? [])], ["a"])
      yield* withinASecond(Effect.sync(() => there.policies.known(endUser) === undefined))
      const ofOrganization = yield* there.policies.find({ ...endUser, organizationId })
      assert.deepStrictEqual(shown(ofOrganization?.limits ?? []), {
        [`budget:customer:${id}@1d`]: dollars(1),
        [`requests:customer:${own}`]: 2n
      })
      assert.strictEqual(yield* here.policies.find({ ...endUser, id: "unknown" }), null)
      assert.strictEqual(here.policies.known({ ...endUser, id: "unknown" }), null)
      assert.strictEqual(here.policies.known({ ...endUser, tenant: "" }), null)
      for (const id of ["a\0b", "x".repeat(5000)]) assert.strictEqual(here.policies.known({ ...endUser, id }), null)

      const blockedIn = (process: typeof here) =>
        Effect.map(process.policies.find(endUser), (policy) => policy?.blocked === true)
      assert.isFalse(yield* blockedIn(there))
      yield* here.customers.update({ either: id }, { blocked: true }, acme)
      assert.isTrue(yield* blockedIn(here))
      yield* withinASecond(blockedIn(there))
      yield* here.tiers.update("daily", { maxBudget: dollars(3) }, acme)
      yield* withinASecond(
        Effect.map(there.policies.find(endUser), (policy) => policy?.limits[0]?.limit === dollars(3))
      )
      yield* here.customers.remove({ either: id }, acme)
      assert.strictEqual(yield* here.policies.find(endUser), null)
    })
  )
})

describe("Customers' policies without a database", () => {
  it.effect("stay in force; nobody unknown gets through; what was missed is seen when it is back", () =>
    Effect.gen(function* () {
      const url = yield* freshDatabase()
      const gate = yield* databaseGate(url)
      const here = yield* startOn(url)
      yield* here.customers.create({ endUserId: "e", rpmLimit: 1 }, master)
      const there = yield* startOn(gate.url)
      const endUser = { tenant: "", organizationId: null, id: "e" }
      assert.strictEqual((yield* there.policies.find(endUser))?.blocked, false)
      gate.cut()
      yield* here.customers.update({ either: "e" }, { blocked: true }, master)
      assert.strictEqual(yield* codeOf(there.policies.find({ ...endUser, id: "unknown" })), "503 database_unavailable")
      yield* TestClock.adjust("2 minutes")
      assert.strictEqual((yield* there.policies.find(endUser))?.blocked, false)
      gate.restore()
      yield* Effect.map(there.policies.find(endUser), (policy) => policy?.blocked === true).pipe(
        Effect.filterOrFail(
          (blocked) => blocked,
          () => "not yet"
        ),
        Effect.retry(Schedule.spaced("10 millis").pipe(Schedule.upTo({ duration: "3 seconds" }))),
        Effect.provideService(Clock.Clock, Clock.Clock.defaultValue())
      )
      assert.strictEqual(yield* there.policies.find({ ...endUser, id: "unknown" }), null)
    })
  )

  it.effect("answer a crowd of unknown end users", () =>
    Effect.gen(function* () {
      const { customers, policies } = yield* start()
      yield* customers.create({ endUserId: "e" }, master)
      yield* Effect.forEach(
        Array.from({ length: 2000 }, (_, n) => `random ${n}`),
        (id) => policies.find({ tenant: "", organizationId: null, id }),
        { concurrency: "unbounded", discard: true }
      )
      assert.strictEqual(policies.known({ tenant: "", organizationId: null, id: "random 1999" }), null)
    })
  )
})

describe("Budget tiers", () => {
  it.effect("are created once, updated field by field, and not deleted while they bind somebody", () =>
    Effect.gen(function* () {
      const { keys, soft, sql, teams, tiers } = yield* start()
      const exits = yield* Effect.all(
        Array.from({ length: 6 }, () =>
          Effect.exit(tiers.create({ budgetId: "b", rpmLimit: 1, softBudget: 1n }, master))
        ),
        { concurrency: "unbounded" }
      )
      assert.strictEqual(exits.filter(({ _tag }) => _tag === "Success").length, 1)
      yield* tiers.update("b", { maxBudget: dollars(2), budgetDuration: "1mo", name: "Plan B" }, master)
      yield* tiers.update("b", { softBudget: null }, master)
      const teamId = yield* teams.create({ alias: "T", budgetId: "b" }, master)
      const { key } = yield* keys.generate({ ...draft, budgetId: "b" })
      const { end, start: windowStart } = windowAt(Window.Calendar({ unit: "mo", count: 1 }), 0)
      const charges = [
        { account: `budget:team:${teamId}@1mo`, windowStart, nanos: 700n },
        { account: `budget:key:${key.id}@1mo`, windowStart, nanos: 30n },
        { account: `budget:team:${teamId}`, windowStart, nanos: 9000n }
      ]
      for (const { account, nanos } of charges) {
        yield* sql`INSERT INTO ledger_accounts (account, window_start, spent) VALUES (${account}, ${windowStart}, ${nanos})`
      }
      yield* soft.charged(charges)
      const tier = yield* tiers.find("b", master)
      assert.deepInclude(tier, {
        name: "Plan B",
        maxBudget: dollars(2),
        softBudget: null,
        rpmLimit: 1,
        budgetDuration: "1mo",
        resetAt: end,
        currentSpend: 730n
      })
      assert.strictEqual((yield* teams.find(teamId, master)).currentSpend, 700n)
      // The next month begins at nothing.
      yield* TestClock.setTime(end)
      assert.strictEqual((yield* tiers.find("b", master)).currentSpend, 0n)

      assert.strictEqual(yield* codeOf(tiers.remove("b", master)), "400 invalid_state")
      yield* teams.remove(teamId, master)
      assert.strictEqual(yield* codeOf(tiers.remove("b", master)), "400 invalid_state")
      yield* keys.discard([{ id: key.id }], everything, "a")
      yield* tiers.remove("b", master)
      assert.strictEqual(yield* codeOf(tiers.find("b", master)), "404 resource_not_found")
      assert.strictEqual(yield* codeOf(tiers.update("b", {}, master)), "404 resource_not_found")
    })
  )

  it.effect("a tier is never deleted under somebody who is being bound to it", () =>
    Effect.gen(function* () {
      const { sql, teams, tiers } = yield* start()
      for (let round = 0; round < 10; round++) {
        yield* tiers.create({ budgetId: "b" }, master)
        yield* Effect.all(
          [Effect.exit(tiers.remove("b", master)), Effect.exit(teams.create({ alias: "T", budgetId: "b" }, master))],
          { concurrency: "unbounded" }
        )
        const [counts] = yield* sql<{ teams: number; tiers: number }>`SELECT
          (SELECT count(*)::int FROM teams WHERE budget_id = 'b') AS teams, (SELECT count(*)::int FROM budgets) AS tiers`
        assert.strictEqual(counts?.teams, counts?.tiers)
        yield* sql`UPDATE teams SET budget_id = NULL`
        yield* sql`DELETE FROM budgets`
      }
    })
  )

  it.effect("tell of a soft budget once, by whoever posts the charge that passes it", () =>
    Effect.gen(function* () {
      const { organizations, soft, sql, teams, tiers } = yield* start()
      yield* tiers.create({ budgetId: "b", softBudget: dollars(10), budgetDuration: "1d" }, master)
      const organizationId = yield* organizations.create({ alias: "O", softBudget: dollars(4) }, master)
      const teamId = yield* teams.create({ alias: "T", organizationId, budgetId: "b" }, master)
      const charge = (nanos: bigint) =>
        sql.withTransaction(
          Effect.gen(function* () {
            const charges = [
              { account: `budget:organization:${organizationId}`, windowStart: 0, nanos },
              { account: `budget:team:${teamId}@1d`, windowStart: 86_400_000, nanos },
              { account: "budget:key:0190b9a0-0000-7000-8000-000000000000", windowStart: 0, nanos },
              { account: "requests:team:x", windowStart: 0, nanos }
            ]
            for (const { account, windowStart } of charges) {
              yield* sql`INSERT INTO ledger_accounts AS a (account, window_start, spent)
                VALUES (${account}, ${windowStart}, ${nanos})
                ON CONFLICT (account, window_start) DO UPDATE SET spent = a.spent + excluded.spent`
            }
            return yield* soft.charged(charges)
          })
        )
      assert.deepStrictEqual(yield* charge(dollars(3)), [])
      assert.deepStrictEqual(yield* charge(dollars(1)), [
        {
          owner: "organization",
          ownerId: organizationId,
          tenant: "",
          organizationId,
          softBudget: dollars(4),
          spent: dollars(4),
          windowStart: 0
        }
      ])
      const crossed = yield* Effect.all(
        Array.from({ length: 8 }, () => charge(dollars(1))),
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(
        crossed.flat().map(({ owner, spent, windowStart }) => [owner, spent, windowStart]),
        [["team", dollars(10), 86_400_000]]
      )
    })
  )
})

describe("Plan tiers", () => {
  it.effect("are put into the catalogue once, whoever comes first", () =>
    Effect.gen(function* () {
      const { plans } = yield* start()
      const put = plans.put({ externalId: "x", slug: "s", limits: { maxBudget: 1n, rpmLimit: null } }, "a")
      const results = yield* Effect.all(
        Array.from({ length: 6 }, () => put),
        { concurrency: "unbounded" }
      )
      assert.strictEqual(results.filter(({ created }) => created).length, 1)
      const { tier } = yield* plans.put({ externalId: "x", limits: { tpmLimit: 5 } }, "a")
      assert.deepInclude(tier, { slug: "s", limits: { maxBudget: 1n, rpmLimit: null, tpmLimit: 5 } })
      assert.strictEqual((yield* plans.put({ externalId: "x", slug: null, limits: {} }, "a")).tier.slug, null)
    })
  )

  it.effect("are applied with their override, to the same result again and again, and never zero a budget", () =>
    Effect.gen(function* () {
      const { keys, organizations, plans, sql, teams } = yield* start()
      const id = yield* organizations.create({ alias: "O", maxBudget: dollars(50), softBudget: 1n }, master)
      const teamId = yield* teams.create({ alias: "T", organizationId: id }, master)
      const own = yield* keys.generate({ ...draft, organizationId: id, models: ["x"], rpmLimit: 3 })
      const teams_ = yield* keys.generate({ ...draft, teamId })
      const stranger = yield* keys.generate({ ...draft, rpmLimit: 3 })
      yield* plans.put({ externalId: "gold", limits: { rpmLimit: 100, tpmLimit: 5, models: ["x", "y"] } }, "a")
      const state = Effect.all([sql`SELECT * FROM organizations ORDER BY id`, sql`SELECT * FROM api_keys ORDER BY id`])
      const effective = yield* organizations.applyTier(id, "gold", { tpmLimit: null }, master)
      assert.deepStrictEqual(effective, {
        maxBudget: dollars(50),
        softBudget: 1n,
        rpmLimit: 100,
        tpmLimit: null,
        models: ["x", "y"],
        budgetId: null
      })
      const after = yield* state
      yield* TestClock.adjust("1 minute")
      assert.deepStrictEqual(yield* organizations.applyTier(id, "gold", { tpmLimit: null }, master), effective)
      assert.deepStrictEqual(yield* state, after, "to the byte, the time of the change included")
      for (const [{ key }, rpm, models] of [
        [own, 100, ["x"]],
        [teams_, 100, []],
        [stranger, 3, []]
      ] as const) {
        assert.deepInclude(yield* keys.find({ id: key.id }, everything), { rpmLimit: rpm, models })
      }
      assert.deepStrictEqual([...((yield* keys.authenticate(teams_.plaintext)).models ?? [])], ["x", "y"])

      const unknown = yield* organizations.applyTier(id, "no such tier", {}, master)
      assert.deepStrictEqual(unknown, effective)
      const override = yield* organizations.applyTier(id, "no such tier", { softBudget: 2n }, master)
      assert.deepStrictEqual(override, { ...effective, softBudget: 2n })
      assert.strictEqual(yield* codeOf(organizations.applyTier("none", "gold", {}, master)), "404 resource_not_found")
      // Two at once, in either order, leave one of the two results.
      yield* Effect.all(
        [1, 2, 3, 4].map((rpmLimit) => organizations.applyTier(id, "gold", { rpmLimit }, master)),
        { concurrency: "unbounded" }
      )
      const rates = yield* sql<{
        rpm_limit: number
      }>`SELECT DISTINCT rpm_limit FROM api_keys WHERE id <> ${stranger.key.id}`
      assert.strictEqual(rates.length, 1)
      assert.strictEqual((yield* organizations.find(id, master)).rpmLimit, rates[0]!.rpm_limit)
    })
  )
})
