/**
 * Lists and look-ups of people and tiers with 1,000,000 keys: medians through the services, against a PostgreSQL of its
 * own. `node bench/people.ts [keys]`.
 */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Context, Duration, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { rowCallerOf } from "#domain/people.ts"
import { masterKeyPrincipal } from "#domain/principal.ts"
import * as AccountSpendPostgres from "#layers/budgets/AccountSpendPostgres.ts"
import * as BudgetTiersPostgres from "#layers/budgets/BudgetTiersPostgres.ts"
import * as SoftBudgetsPostgres from "#layers/budgets/SoftBudgetsPostgres.ts"
import * as KeyStorePostgres from "#layers/keys/KeyStorePostgres.ts"
import { makeKeyQueries } from "#layers/keys/KeyQueries.ts"
import * as CustomerPoliciesPostgres from "#layers/people/CustomerPoliciesPostgres.ts"
import * as CustomersPostgres from "#layers/people/CustomersPostgres.ts"
import * as OrganizationsPostgres from "#layers/people/OrganizationsPostgres.ts"
import * as TeamsPostgres from "#layers/people/TeamsPostgres.ts"
import * as UsersPostgres from "#layers/people/UsersPostgres.ts"
import * as ProvenancePostgres from "#layers/provenance/ProvenancePostgres.ts"
import * as ChangeFeedPostgres from "#layers/storage/ChangeFeedPostgres.ts"
import * as DatabasePostgres from "#layers/storage/DatabasePostgres.ts"
import * as EmbeddedPostgres from "#layers/storage/EmbeddedPostgres.ts"
import * as MigrationsPostgres from "#layers/storage/MigrationsPostgres.ts"
import * as TenantsPostgres from "#layers/tenants/TenantsPostgres.ts"
import * as OwnerSpendPostgres from "#layers/usage/OwnerSpendPostgres.ts"
import { BudgetTiers } from "#services/budgets/BudgetTiers.ts"
import { SoftBudgets } from "#services/budgets/SoftBudgets.ts"
import { CustomerPolicies } from "#services/people/CustomerPolicies.ts"
import { Customers } from "#services/people/Customers.ts"
import { Organizations } from "#services/people/Organizations.ts"
import { Teams } from "#services/people/Teams.ts"
import { Users } from "#services/people/Users.ts"
import { idleUsageLedger } from "#test/support/usage.ts"

const keys = Number(process.argv[2] ?? 1_000_000)
const [users, teams, organizations, customers, budgets] = [keys / 10, 5_000, 500, keys / 10, 200]

const id = (kind: string, n: string) => `'0197a3f0-0000-7000-8${kind}-' || lpad((${n})::text, 12, '0')`

/** Rows as the gateway would have made them, newest last. */
const seed = [
  `INSERT INTO budgets (tenant, budget_id, max_budget, soft_budget, budget_duration, created_by, created_at, updated_at)
    SELECT '', 'b' || n, 1000, 500, '1mo', 'bench', now() - n * interval '1 second', now() FROM generate_series(1, ${budgets}) n`,
  `INSERT INTO organizations (id, organization_alias, max_budget, created_by, created_at, updated_at)
    SELECT ${id("001", "n")}, 'o' || n, 100, 'bench', now() - n * interval '1 second', now() FROM generate_series(1, ${organizations}) n`,
  `INSERT INTO teams (id, team_alias, organization_id, rpm_limit, budget_id, created_by, created_at, updated_at)
    SELECT ${id("002", "n")}, 't' || n, ${id("001", `n % ${organizations} + 1`)}, 10, 'b' || (n % ${budgets} + 1), 'bench', now() - n * interval '1 second', now()
    FROM generate_series(1, ${teams}) n`,
  `INSERT INTO users (id, user_email, user_role, name, max_budget, created_by, created_at, updated_at)
    SELECT ${id("003", "n")}, 'u' || n || '@x.org', CASE n % 10 WHEN 0 THEN 'developer' ELSE 'user' END, 'U' || n, 5, 'bench', now() - n * interval '1 second', now()
    FROM generate_series(1, ${users}) n`,
  `INSERT INTO team_members (team_id, user_id, role, created_at)
    SELECT ${id("002", `n % ${teams} + 1`)}, ${id("003", "n")}, 'member', now() FROM generate_series(1, ${users}) n`,
  `INSERT INTO organization_members (organization_id, user_id, role, created_at)
    SELECT ${id("001", `n % ${organizations} + 1`)}, ${id("003", "n")}, 'member', now() FROM generate_series(1, ${users}) n`,
  `INSERT INTO customers (id, end_user_id, max_budget, created_by, created_at, updated_at)
    SELECT ${id("004", "n")}, 'e' || n, 3, 'bench', now() - n * interval '1 second', now() FROM generate_series(1, ${customers}) n`,
  `INSERT INTO api_keys (id, token_hash, token_hint, user_id, team_id, created_by, budget_id)
    SELECT (${id("005", "n")})::uuid, sha256(n::text::bytea), 'abcd', ${id("003", `n % ${users} + 1`)}, ${id("002", `n % ${teams} + 1`)}, 'bench',
      CASE n % 20 WHEN 0 THEN 'b' || (n / 20 % ${budgets} + 1) END
    FROM generate_series(1, ${keys}) n`,
  `INSERT INTO owner_usage (owner, id, organization_id, requests, spend)
    SELECT 'team', id, '', 10, 1.5 FROM teams UNION ALL SELECT 'organization', id, '', 10, 1.5 FROM organizations
    UNION ALL SELECT 'user', id, '', 10, 1.5 FROM users UNION ALL SELECT 'customer', end_user_id, '', 10, 1.5 FROM customers`,
  `INSERT INTO ledger_accounts (account, window_start, spent)
    SELECT 'budget:team:' || id || '@1mo', (extract(epoch FROM date_trunc('month', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC') * 1000)::bigint, 7 FROM teams
    UNION ALL SELECT 'budget:user:' || id, 0, 7 FROM users
    UNION ALL SELECT 'budget:key:' || id || '@1mo', (extract(epoch FROM date_trunc('month', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC') * 1000)::bigint, 7 FROM api_keys WHERE budget_id IS NOT NULL`,
  `INSERT INTO budget_usage (tenant, budget_id, window_start, spent)
    SELECT '', budget_id, (extract(epoch FROM date_trunc('month', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC') * 1000)::bigint, 7 FROM budgets`,
  "ANALYZE"
]

const services = Layer.mergeAll(
  UsersPostgres.layer,
  TeamsPostgres.layer,
  OrganizationsPostgres.layer,
  CustomersPostgres.layer,
  BudgetTiersPostgres.layer,
  SoftBudgetsPostgres.layer
).pipe(
  Layer.provideMerge(
    Layer.mergeAll(
      KeyStorePostgres.layer(),
      CustomerPoliciesPostgres.layer(),
      OwnerSpendPostgres.layer,
      AccountSpendPostgres.layer
    )
  ),
  Layer.provideMerge(Layer.mergeAll(ProvenancePostgres.layer, idleUsageLedger)),
  Layer.provideMerge(Layer.mergeAll(TenantsPostgres.layer([]), ChangeFeedPostgres.layer)),
  Layer.provideMerge(MigrationsPostgres.layer),
  Layer.provideMerge(DatabasePostgres.layer({ poolSize: 4, statementTimeout: "10 minutes" }))
)

const master = rowCallerOf(masterKeyPrincipal)

const measure = <A, E>(name: string, effect: Effect.Effect<A, E>, rounds = 41) =>
  Effect.gen(function* () {
    const times: Array<number> = []
    for (let round = 0; round < rounds; round++) {
      const began = performance.now()
      yield* effect
      times.push(performance.now() - began)
    }
    times.sort((a, b) => a - b)
    const at = (share: number) => (times[Math.floor(times.length * share)] ?? 0).toFixed(1)
    console.log(`${name.padEnd(58)} median ${at(0.5).padStart(7)} ms   p90 ${at(0.9).padStart(7)} ms`)
  })

const program = Effect.gen(function* () {
  const context = yield* Layer.build(services)
  const sql = Context.get(context, SqlClient.SqlClient)
  const began = performance.now()
  yield* Effect.forEach(seed, (statement) => sql.unsafe(statement), { discard: true }).pipe(
    Effect.provideService(DatabasePostgres.StatementDeadline, Duration.infinity)
  )
  // Index-only scans need the visibility map, which autovacuum keeps in a running database.
  yield* sql.unsafe("VACUUM")
  console.log(`${keys} keys, ${users} users, ${teams} teams, ${organizations} organizations, ${customers} customers,`)
  console.log(`${budgets} budget tiers; made in ${((performance.now() - began) / 1000).toFixed(0)} s\n`)
  const [people, team, organization, customer, tiers] = [
    Context.get(context, Users),
    Context.get(context, Teams),
    Context.get(context, Organizations),
    Context.get(context, Customers),
    Context.get(context, BudgetTiers)
  ]
  const page = { page: 1, pageSize: 500 }
  const [someone] = (yield* people.list({ page: 7, pageSize: 10 }, master)).rows
  const [someTeam] = (yield* team.list({ page: 7, pageSize: 10 }, master)).rows
  const org = { ...master, scope: { tenant: "", organizationId: someTeam?.organizationId ?? "" } }
  yield* measure("user/list, 50 rows", people.list({ page: 1, pageSize: 50 }, master))
  yield* measure("user/list, 500 rows of one role", people.list({ ...page, role: "developer" }, master))
  yield* measure("user/list, page 1000 of 50", people.list({ page: 1000, pageSize: 50 }, master))
  yield* measure("user/list of an organization's administrator", people.list({ page: 1, pageSize: 50 }, org))
  yield* measure("user/info by email", people.find({ email: someone?.email ?? "" }, master))
  yield* measure("team/list, 500 rows", team.list(page, master))
  yield* measure(
    "team/list of an organization",
    team.list({ ...page, organizationId: someTeam?.organizationId ?? "" }, master)
  )
  yield* measure("team/info", team.find(someTeam?.id ?? "", master))
  yield* measure("organization/list, 500 rows", organization.list(page, master))
  yield* measure("customer/list, 500 rows", customer.list(page, master))
  yield* measure(`budget/list, ${budgets} tiers that bind ${keys / 20} keys`, tiers.list(page, master), 11)
  yield* measure("budget/info", tiers.find("b7", master))

  const digests = yield* sql<{
    hash: Uint8Array
  }>`SELECT token_hash AS hash FROM api_keys TABLESAMPLE SYSTEM (1) LIMIT 500`
  const queries = makeKeyQueries(sql)
  const texts = digests.map(({ hash }) => Buffer.from(hash).toString("base64"))
  yield* measure("policy of 1 key with its chain", queries.byDigests(texts.slice(0, 1)))
  yield* measure("policies of 500 keys with their chains", queries.byDigests(texts))
  const policies = Context.get(context, CustomerPolicies)
  yield* policies.changed({ tenant: "", id: "e1" })
  let unseen = 0
  const look = Effect.suspend(() => policies.find({ tenant: "", organizationId: null, id: `e${++unseen}` }))
  yield* measure("a customer's policy, unseen", look)
  const endUser = { tenant: "", organizationId: null, id: "e1" }
  yield* policies.find(endUser)
  const lookups = 1_000_000
  const start = performance.now()
  for (let n = 0; n < lookups; n++) policies.known(endUser)
  console.log(`a customer's policy, known: ${(((performance.now() - start) / lookups) * 1e6).toFixed(0)} ns`)
  const owners = yield* sql<{
    account: string
    window_start: bigint
  }>`SELECT account, window_start FROM ledger_accounts LIMIT 250`
  const charges = owners.map((row) => ({ account: row.account, windowStart: Number(row.window_start), nanos: 1n }))
  yield* measure("soft budgets and tiers of 250 charges", Context.get(context, SoftBudgets).charged(charges))
})

const directory = mkdtempSync(join(tmpdir(), "sluice-bench-people-"))
await Effect.runPromise(
  Effect.scoped(program.pipe(Effect.provide(EmbeddedPostgres.layer({ dataDir: directory, durable: false }))))
).finally(() => rmSync(directory, { recursive: true, force: true }))
