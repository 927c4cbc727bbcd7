import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import type { GatewayError } from "#domain/errors.ts"
import { uuidv7 } from "#domain/ids.ts"
import { CurrentRequestId } from "#services/identity/CurrentRequestId.ts"
import { Customers } from "#services/people/Customers.ts"
import { Organizations } from "#services/people/Organizations.ts"
import { Teams } from "#services/people/Teams.ts"
import { Users } from "#services/people/Users.ts"
import { Provenance } from "#services/provenance/Provenance.ts"
import { administrator, master, peopleProcess } from "#test/support/people.ts"
import { freshDatabase } from "#test/support/Postgres.ts"

const start = (slugs: ReadonlyArray<string> = []) =>
  Effect.gen(function* () {
    const context = yield* Layer.build(peopleProcess(yield* freshDatabase(), slugs))
    return {
      users: Context.get(context, Users),
      teams: Context.get(context, Teams),
      organizations: Context.get(context, Organizations),
      customers: Context.get(context, Customers),
      provenance: Context.get(context, Provenance),
      sql: Context.get(context, SqlClient.SqlClient)
    }
  })

const page = { page: 1, pageSize: 50 }

const codeOf = <A>(effect: Effect.Effect<A, GatewayError>) =>
  Effect.map(Effect.flip(effect), (error) => `${error.status} ${error.code}`)

/** One day's usage of a key, as the ledger writes it. */
const recordUsage = (
  sql: SqlClient.SqlClient,
  schema: string,
  owners: { user?: string; team?: string; organization?: string; endUser?: string },
  spend: string
) =>
  sql`INSERT INTO ${sql.literal(schema)}.daily_usage
    (day, key_id, user_id, team_id, organization_id, end_user_id, model, requests, prompt_tokens, completion_tokens, spend)
    VALUES ('2026-05-01', '00000000-0000-7000-8000-000000000001', ${owners.user ?? ""}, ${owners.team ?? ""},
      ${owners.organization ?? ""}, ${owners.endUser ?? ""}, 'm', 1, 1, 1, ${spend})
    ON CONFLICT (day, key_id, model, user_id, team_id, organization_id, end_user_id)
    DO UPDATE SET requests = daily_usage.requests + 1, spend = daily_usage.spend + excluded.spend`

describe("Users", () => {
  it.effect("creates, finds, updates, lists and softly deletes", () =>
    Effect.gen(function* () {
      const { organizations, provenance, sql, teams, users } = yield* start()
      const ada = yield* users
        .create({ name: "Ada", email: "Ada@x.org", maxBudget: 5n }, master)
        .pipe(Effect.provideService(CurrentRequestId, "req-12345678"))
      assert.strictEqual(ada.role, "user")
      assert.deepInclude(yield* users.find({ email: "ada@X.ORG" }, master), { id: ada.id, email: "Ada@x.org" })
      assert.strictEqual(
        yield* codeOf(users.create({ name: "Other", email: "ADA@x.org" }, master)),
        "400 already_exists"
      )
      yield* TestClock.adjust("1 second")
      const bob = yield* users.create({ name: "Bob", role: "developer" }, master)

      const organization = yield* organizations.create({ alias: "O" }, master)
      const team = yield* teams.create({ alias: "T", organizationId: organization }, master)
      yield* organizations.addMember(organization, ada.id, "owner", master)
      yield* teams.addMember(team, ada.id, undefined, master)
      assert.deepInclude(yield* users.find({ id: ada.id }, master), { organizationId: organization, teamId: team })

      yield* users.update(ada.id, { role: "developer", rpmLimit: 5 }, master)
      yield* users.update(ada.id, { maxBudget: null }, master)
      const changed = yield* users.find({ id: ada.id }, master)
      assert.deepInclude(changed, { role: "developer", rpmLimit: 5, maxBudget: null, name: "Ada" })
      yield* users.update(ada.id, { role: null }, master)
      assert.strictEqual((yield* users.find({ id: ada.id }, master)).role, "user")
      assert.strictEqual(yield* codeOf(users.update(bob.id, { email: "ada@x.org" }, master)), "400 already_exists")

      assert.deepStrictEqual(
        (yield* users.list(page, master)).rows.map(({ name }) => name),
        ["Bob", "Ada"]
      )
      assert.deepStrictEqual(
        yield* users.list({ page: 2, pageSize: 1 }, master).pipe(Effect.map((l) => l.hasMore)),
        false
      )
      assert.isTrue((yield* users.list({ page: 1, pageSize: 1 }, master)).hasMore)
      const developers = yield* users.list({ ...page, role: "developer" }, master)
      assert.deepStrictEqual(
        developers.rows.map(({ id }) => id),
        [bob.id]
      )

      yield* users.remove(ada.id, master)
      assert.strictEqual(yield* codeOf(users.find({ id: ada.id }, master)), "404 resource_not_found")
      assert.strictEqual(yield* codeOf(users.remove(ada.id, master)), "404 resource_not_found")
      assert.strictEqual(yield* codeOf(users.update(ada.id, { name: "x" }, master)), "404 resource_not_found")
      assert.strictEqual((yield* teams.find(team, master)).memberCount, 0)
      // The email is free again.
      yield* users.create({ name: "Ada II", email: "ada@x.org" }, master)

      const entries = yield* sql<{ action: string; actor: string; payload: unknown; request_id: string | null }>`
        SELECT action, actor, payload, request_id FROM provenance_entries WHERE resource_id = ${ada.id}
        ORDER BY sequence_number`
      assert.deepStrictEqual(
        entries.map(({ action }) => action),
        ["user.created", "user.updated", "user.updated", "user.updated", "user.deleted"]
      )
      assert.deepStrictEqual(entries[0], {
        action: "user.created",
        actor: "master_key",
        payload: { user_role: "user", max_budget: "0.000000005" },
        request_id: "req-12345678"
      })
      assert.isUndefined((yield* provenance.verify("")).broken)
    })
  )

  it.effect("lets one of several creations with one email through", () =>
    Effect.gen(function* () {
      const { users } = yield* start()
      const exits = yield* Effect.all(
        Array.from({ length: 8 }, () => Effect.exit(users.create({ name: "N", email: "n@x.org" }, master))),
        { concurrency: "unbounded" }
      )
      assert.strictEqual(exits.filter(({ _tag }) => _tag === "Success").length, 1)
      assert.strictEqual((yield* users.list(page, master)).rows.length, 1)
      // And of two users who take one email at once.
      const [a, b] = [yield* users.create({ name: "A" }, master), yield* users.create({ name: "B" }, master)]
      const taken = yield* Effect.all(
        [a, b].map(({ id }) => Effect.exit(users.update(id, { email: "same@x.org" }, master))),
        { concurrency: "unbounded" }
      )
      assert.strictEqual(taken.filter(({ _tag }) => _tag === "Success").length, 1)
    })
  )
})

describe("Teams and organizations", () => {
  it.effect("keeps both of two updates of one row, and writes nothing of a refused one", () =>
    Effect.gen(function* () {
      const { sql, teams } = yield* start()
      const id = yield* teams.create({ alias: "T", models: ["a"], maxBudget: 7_000_000_000n }, master)
      yield* Effect.all(
        [
          teams.update(id, { alias: "Renamed" }, master),
          teams.update(id, { maxBudget: null }, master),
          teams.update(id, { rpmLimit: 3 }, master)
        ],
        { concurrency: "unbounded" }
      )
      assert.deepInclude(yield* teams.find(id, master), {
        alias: "Renamed",
        maxBudget: null,
        rpmLimit: 3,
        models: ["a"],
        memberCount: 0
      })
      const before = yield* sql`SELECT count(*)::int AS n FROM provenance_entries`
      assert.strictEqual(
        yield* codeOf(teams.update(id, { alias: "Never", budgetId: "no such" }, master)),
        "400 invalid_value"
      )
      assert.strictEqual((yield* teams.find(id, master)).alias, "Renamed")
      assert.deepStrictEqual(yield* sql`SELECT count(*)::int AS n FROM provenance_entries`, before)
      assert.strictEqual(
        yield* codeOf(teams.create({ alias: "X", organizationId: "none" }, master)),
        "400 invalid_value"
      )
    })
  )

  it.effect("has members, once each", () =>
    Effect.gen(function* () {
      const { organizations, sql, teams, users } = yield* start()
      const organization = yield* organizations.create({ alias: "O", metadata: { plan: ["x"] } }, master)
      const team = yield* teams.create({ alias: "T", organizationId: organization }, master)
      const user = yield* users.create({ name: "U" }, master)
      yield* Effect.all(
        Array.from({ length: 5 }, () => teams.addMember(team, user.id, "admin", master)),
        { concurrency: "unbounded", discard: true }
      )
      yield* teams.addMember(team, user.id, undefined, master)
      assert.deepStrictEqual(yield* sql`SELECT role FROM team_members`, [{ role: "admin" }])
      assert.strictEqual((yield* teams.find(team, master)).memberCount, 1)
      yield* organizations.addMember(organization, user.id, undefined, master)
      assert.deepInclude(yield* organizations.find(organization, master), {
        memberCount: 1,
        teamCount: 1,
        metadata: { plan: ["x"] }
      })
      assert.strictEqual(yield* codeOf(teams.addMember(team, "nobody", undefined, master)), "404 resource_not_found")
      yield* teams.removeMember(team, user.id, master)
      assert.strictEqual(yield* codeOf(teams.removeMember(team, user.id, master)), "404 resource_not_found")
      yield* organizations.removeMember(organization, user.id, master)
      assert.strictEqual((yield* organizations.find(organization, master)).memberCount, 0)
      yield* organizations.update(organization, { metadata: { other: 1 } }, master)
      assert.deepInclude(yield* organizations.find(organization, master), { alias: "O", metadata: { other: 1 } })
    })
  )

  it.effect("shows recorded spend, of customers only their organization's", () =>
    Effect.gen(function* () {
      const { customers, organizations, sql, teams } = yield* start(["acme"])
      const acme = administrator("tenant_admin", "acme")
      const organization = yield* organizations.create({ alias: "O" }, acme)
      const other = yield* organizations.create({ alias: "P" }, acme)
      const team = yield* teams.create({ alias: "T", organizationId: organization }, acme)
      const publicTeam = yield* teams.create({ alias: "public" }, master)
      yield* customers.create({ endUserId: "e" }, acme)
      yield* TestClock.adjust("1 second")
      yield* customers.create({ endUserId: "e" }, administrator("org_admin", "acme", organization))
      yield* recordUsage(sql, "tenant_acme", { team, organization, endUser: "e" }, "1.25")
      yield* recordUsage(sql, "tenant_acme", { team, organization, endUser: "e" }, "0.000000001")
      yield* recordUsage(sql, "tenant_acme", { organization: other, endUser: "e" }, "3")
      yield* recordUsage(sql, "public", { team: publicTeam }, "9")
      const spends = Object.fromEntries((yield* teams.list(page, master)).rows.map((row) => [row.id, row.totalSpend]))
      assert.deepStrictEqual(spends, { [team]: 1_250_000_001n, [publicTeam]: 9_000_000_000n })
      assert.strictEqual((yield* organizations.find(other, acme)).totalSpend, 3_000_000_000n)
      assert.deepStrictEqual(
        (yield* customers.list(page, acme)).rows.map((row) => [row.organizationId, row.totalSpend]),
        [
          [organization, 1_250_000_001n],
          [null, 4_250_000_001n]
        ]
      )
    })
  )
})

describe("Scopes", () => {
  it.effect("one tenant neither sees nor changes another's people", () =>
    Effect.gen(function* () {
      const { customers, organizations, sql, teams, users } = yield* start(["acme", "beta"])
      const acme = administrator("tenant_admin", "acme")
      const beta = administrator("tenant_admin", "beta")
      const user = yield* users.create({ name: "U", email: "u@x.org" }, acme)
      const organization = yield* organizations.create({ alias: "O" }, acme)
      const team = yield* teams.create({ alias: "T" }, acme)
      const customer = yield* customers.create({ endUserId: "e" }, acme)
      const foreign = yield* users.create({ name: "F", email: "u@x.org" }, beta)
      const gone = [
        users.find({ id: user.id }, beta),
        users.find({ email: "u@x.org" }, administrator("tenant_admin", "")),
        users.update(user.id, { name: "x" }, beta),
        users.remove(user.id, beta),
        teams.find(team, beta),
        teams.update(team, { alias: "x" }, beta),
        teams.setBlocked(team, true, beta),
        teams.remove(team, beta),
        teams.addMember(team, foreign.id, undefined, beta),
        teams.addMember(team, foreign.id, undefined, acme),
        // Not even the master key mixes two tenants.
        teams.addMember(team, foreign.id, undefined, master),
        organizations.find(organization, beta),
        organizations.update(organization, { alias: "x" }, beta),
        organizations.remove(organization, beta),
        organizations.addMember(organization, foreign.id, undefined, beta),
        customers.update({ either: customer }, { blocked: true }, beta),
        customers.update({ either: "e" }, { blocked: true }, beta),
        customers.remove({ either: "", id: customer }, beta)
      ]
      for (const effect of gone) assert.strictEqual(yield* codeOf<unknown>(effect), "404 resource_not_found")
      assert.strictEqual(
        yield* codeOf(teams.create({ alias: "x", organizationId: organization }, beta)),
        "400 invalid_value"
      )
      assert.strictEqual(
        yield* codeOf(teams.create({ alias: "x" }, administrator("tenant_admin", "elsewhere"))),
        "403 insufficient_permissions"
      )
      assert.deepStrictEqual((yield* users.list(page, beta)).rows.length, 1)
      assert.deepStrictEqual((yield* teams.list(page, beta)).rows, [])
      assert.deepStrictEqual((yield* organizations.list(page, beta)).rows, [])
      assert.deepStrictEqual((yield* customers.list(page, beta)).rows, [])
      assert.strictEqual((yield* users.list(page, master)).rows.length, 2)
      // The audit entry is in the row's tenant, whoever acted.
      yield* teams.setBlocked(team, true, master)
      const entries = yield* sql`SELECT actor FROM tenant_acme.provenance_entries WHERE action = 'team.blocked'`
      assert.deepStrictEqual(entries, [{ actor: "master_key" }])
    })
  )

  it.effect("an organization's administrator has its own organization's people", () =>
    Effect.gen(function* () {
      const { customers, organizations, teams, users } = yield* start(["acme"])
      const acme = administrator("tenant_admin", "acme")
      const mine = yield* organizations.create({ alias: "Mine" }, acme)
      const theirs = yield* organizations.create({ alias: "Theirs" }, acme)
      const admin = administrator("org_admin", "acme", mine)
      const outsider = yield* users.create({ name: "Outsider" }, acme)
      const member = yield* users.create({ name: "Member" }, admin)
      assert.strictEqual(member.organizationId, mine)
      const own = yield* teams.create({ alias: "Own" }, admin)
      const other = yield* teams.create({ alias: "Other", organizationId: theirs }, acme)
      assert.strictEqual((yield* teams.find(own, admin)).organizationId, mine)
      const refused = [
        [users.find({ id: outsider.id }, admin), "404 resource_not_found"],
        [teams.find(other, admin), "404 resource_not_found"],
        [teams.addMember(own, outsider.id, undefined, admin), "404 resource_not_found"],
        [organizations.find(theirs, admin), "404 resource_not_found"],
        [teams.create({ alias: "x", organizationId: theirs }, admin), "400 invalid_value"],
        [organizations.create({ alias: "x" }, admin), "403 insufficient_permissions"],
        [organizations.remove(mine, admin), "403 insufficient_permissions"],
        [organizations.update(mine, { maxBudget: null }, admin), "403 insufficient_permissions"],
        [users.create({ name: "x" }, administrator("org_admin", "acme")), "404 resource_not_found"],
        [teams.create({ alias: "x" }, administrator("org_admin", "acme")), "400 invalid_value"],
        [customers.create({ endUserId: "x" }, administrator("org_admin", "acme")), "400 invalid_value"]
      ] as const
      for (const [effect, code] of refused) assert.strictEqual(yield* codeOf<unknown>(effect), code)
      yield* organizations.update(mine, { alias: "Ours" }, admin)
      yield* teams.addMember(own, member.id, undefined, admin)
      assert.deepStrictEqual(
        (yield* users.list(page, admin)).rows.map(({ id }) => id),
        [member.id]
      )
      assert.deepStrictEqual(
        (yield* organizations.list(page, admin)).rows.map(({ alias }) => alias),
        ["Ours"]
      )
      assert.deepStrictEqual(
        (yield* teams.list({ ...page, organizationId: theirs }, admin)).rows.map(({ id }) => id),
        []
      )
      assert.deepStrictEqual(
        (yield* teams.list({ ...page, organizationId: theirs }, acme)).rows.map(({ id }) => id),
        [other]
      )
    })
  )
})

describe("Customers", () => {
  it.effect("are addressed by row id or by end user, whichever is given first", () =>
    Effect.gen(function* () {
      const { customers, organizations } = yield* start(["acme"])
      const acme = administrator("tenant_admin", "acme")
      const id = yield* customers.create({ endUserId: "e1", endUserName: "One", maxBudget: 1n }, acme)
      assert.strictEqual(yield* codeOf(customers.create({ endUserId: "e1" }, acme)), "400 already_exists")
      yield* customers.update({ either: "ignored", id }, { endUserName: "Uno" }, acme)
      yield* customers.update({ either: "ignored", endUserId: "e1" }, { blocked: true }, acme)
      yield* customers.update({ either: "e1" }, { maxBudget: null }, acme)
      yield* customers.update({ either: id }, { rpmLimit: 9 }, acme)
      const [row] = (yield* customers.list(page, acme)).rows
      assert.deepInclude(row, { id, endUserName: "Uno", blocked: true, maxBudget: null, rpmLimit: 9 })
      assert.strictEqual(
        yield* codeOf(customers.update({ either: id, id: uuidv7(0) }, {}, acme)),
        "404 resource_not_found"
      )
      // Two organizations' customers of one name: only an id tells them apart.
      for (const alias of ["A", "B"]) {
        const organization = yield* organizations.create({ alias }, acme)
        yield* customers.create({ endUserId: "shared" }, administrator("org_admin", "acme", organization))
      }
      assert.strictEqual(
        yield* codeOf(customers.update({ either: "shared" }, { blocked: true }, acme)),
        "400 invalid_value"
      )
      yield* customers.remove({ either: "e1" }, acme)
      assert.strictEqual(yield* codeOf(customers.remove({ either: "e1" }, acme)), "404 resource_not_found")
      const exits = yield* Effect.all(
        Array.from({ length: 6 }, () => Effect.exit(customers.create({ endUserId: "e1" }, acme))),
        { concurrency: "unbounded" }
      )
      assert.strictEqual(exits.filter(({ _tag }) => _tag === "Success").length, 1)
    })
  )
})
