import { assert, it } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { limitOf, Window } from "#domain/limits.ts"
import { recordedSpend } from "#layers/usage/recorded-spend.ts"
import { Customers } from "#services/people/Customers.ts"
import { Organizations } from "#services/people/Organizations.ts"
import { administrator, peopleProcess } from "#test/support/people.ts"
import { freshDatabase } from "#test/support/Postgres.ts"

it.effect("knows what owners spent in a window before their budget was set, customers within their scope", () =>
  Effect.gen(function* () {
    const context = yield* Layer.build(peopleProcess(yield* freshDatabase(), ["acme"]))
    const sql = Context.get(context, SqlClient.SqlClient)
    const acme = administrator("tenant_admin", "acme")
    const organization = yield* Context.get(context, Organizations).create({ alias: "O" }, acme)
    const customers = Context.get(context, Customers)
    const whole = yield* customers.create({ endUserId: "e" }, acme)
    const own = yield* customers.create({ endUserId: "e" }, administrator("org_admin", "acme", organization))
    for (const [schema, day, organizationId, spend] of [
      ["tenant_acme", "2026-05-01", organization, "1"],
      ["tenant_acme", "2026-05-31", "other", "10"],
      ["tenant_acme", "2026-06-01", organization, "100"],
      ["public", "2026-05-01", "", "1000"]
    ] as const) {
      yield* sql`INSERT INTO ${sql.literal(schema)}.daily_usage
        (day, key_id, user_id, team_id, organization_id, end_user_id, model, requests, prompt_tokens, completion_tokens, spend)
        VALUES (${day}, '00000000-0000-7000-8000-000000000001', '', 'team', ${organizationId}, 'e', 'm', 1, 1, 1, ${spend})`
    }
    const spent = yield* Effect.provide(recordedSpend, context)
    const may = [Date.UTC(2026, 4, 1), Date.UTC(2026, 5, 1)] as const
    const month = Window.Calendar({ unit: "mo", count: 1 })
    const monthly = (owner: "team" | "customer", id: string) =>
      Effect.map(spent(limitOf(owner, `${id}@1mo`, "budget", 1n, month), ...may), (nanos) => nanos / 1_000_000_000n)
    assert.strictEqual(yield* monthly("team", "team"), 1011n)
    assert.strictEqual(yield* monthly("customer", whole), 11n)
    assert.strictEqual(yield* monthly("customer", own), 1n)
    assert.strictEqual(yield* monthly("customer", "gone"), 0n)
    const lifetime = limitOf("customer", own, "budget", 1n, Window.Lifetime())
    assert.strictEqual(yield* spent(lifetime, 0, Number.POSITIVE_INFINITY), 101_000_000_000n)
  })
)
