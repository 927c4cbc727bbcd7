import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Exit, Layer, Scope } from "effect"
import { SqlClient, SqlError } from "effect/sql"
import { TestClock } from "effect/testing"
import { uuidv7 } from "#domain/ids.ts"
import { type Limit, limitOf, Window } from "#domain/limits.ts"
import { watchedBudget } from "#domain/policy-chain.ts"
import * as AlertsPostgres from "#layers/callbacks/AlertsPostgres.ts"
import { Alerts, type AlertsShape } from "#services/callbacks/Alerts.ts"
import { Outbox } from "#services/callbacks/Outbox.ts"
import { type HealthChange, ProviderRouter, type RoutableModel } from "#services/inference/ProviderRouter.ts"
import { ModelRegistry, type RegisteredModel } from "#services/models/ModelRegistry.ts"
import { Provenance } from "#services/provenance/Provenance.ts"
import { administrationBase } from "#test/support/administration.ts"

const price = { input: 0n, output: 0n, cacheRead: 0n, cacheWrite: 0n, request: 0n, image: 0n, second: 0n }

/** The models that every process of a test knows, and whether each has a price. */
class Models {
  readonly priced = new Map<string, boolean>()
  readonly #listeners = new Set<() => void>()

  set(name: string, priced: boolean): void {
    this.priced.set(name, priced)
    for (const listener of this.#listeners) listener()
  }

  readonly registry: Layer.Layer<ModelRegistry> = Layer.mock(ModelRegistry, {
    snapshot: () => [...this.priced.keys()].map((modelName) => ({ modelName }) as RegisteredModel),
    onChange: (listener) =>
      Effect.sync(() => {
        this.#listeners.add(() => listener([]))
        listener([])
      })
  })

  readonly find = (name: string): RoutableModel | undefined => {
    const priced = this.priced.get(name)
    if (priced === undefined) return undefined
    const more = { maxOutputTokens: 1, maxInputTokens: undefined, operations: new Set(["chat"] as const) }
    return { name, price: priced ? price : undefined, ...more }
  }
}

interface Process {
  readonly alerts: AlertsShape
  readonly health: (state: HealthChange["state"], deploymentId?: string) => void
  /** Ends it, with everything told that was noticed. */
  readonly end: Effect.Effect<void>
}

const startProcess = Effect.fnUntraced(function* (models: Models = new Models()) {
  const listeners: Array<(change: HealthChange) => void> = []
  const router: Layer.Layer<ProviderRouter> = Layer.mock(ProviderRouter, {
    find: models.find,
    begin: () => () => undefined,
    health: () => [],
    onHealthChange: (listener) => Effect.sync(() => void listeners.push(listener))
  })
  const scope = yield* Scope.make()
  const layer = AlertsPostgres.layer.pipe(Layer.provide(Layer.merge(router, models.registry)), Layer.fresh)
  const context = yield* Scope.provide(Layer.build(layer), scope)
  const process: Process = {
    alerts: Context.get(context, Alerts),
    health: (state, deploymentId = "d-1") => {
      for (const listener of listeners) listener({ deploymentId, modelName: "gpt", state, reason: "secret reason" })
    },
    end: Scope.close(scope, Exit.void)
  }
  return process
})

/** What a process does from its start to its end. */
const during = (run: (process: Process) => void, models?: Models) =>
  Effect.flatMap(startProcess(models), (process) =>
    Effect.andThen(
      Effect.sync(() => run(process)),
      process.end
    )
  )

interface Told {
  readonly type: string
  readonly tenant: string | null
  readonly data: Readonly<Record<string, unknown>>
}

const listening = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`INSERT INTO public.callbacks (id, whole_instance, url, events, sealed, encryption_key_id, created_by, created_at)
    VALUES (${uuidv7(0)}, true, 'https://example.com', '{}', '\\x00', 'k', 'user:ann', now())`
})

const told = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* sql<{ body: string }>`SELECT body FROM public.callback_deliveries ORDER BY event_id`
  return rows.map(({ body }) => JSON.parse(body) as Told)
})

const team = Effect.fnUntraced(function* (id: string) {
  const sql = yield* SqlClient.SqlClient
  yield* sql`INSERT INTO public.organizations (id, tenant, organization_alias, created_by, created_at, updated_at)
    VALUES ('org-1', 'acme', 'Research', 'user:ann', now(), now())`
  yield* sql`INSERT INTO public.teams (id, tenant, organization_id, team_alias, created_by, created_at, updated_at)
    VALUES (${id}, 'acme', 'org-1', ${id}, 'user:ann', now(), now())`
})

const monthly = (id: string, dollars: bigint): Limit =>
  limitOf("team", `${id}@1mo`, "budget", dollars * 1_000_000_000n, Window.Calendar({ unit: "mo", count: 1 }))

const january = Date.parse("2031-01-15T12:00:00Z")

describe("AlertsPostgres", () => {
  it.effect("tells of a budget once a window and amount, over processes and their lives, with an audit entry", () =>
    Effect.gen(function* () {
      yield* TestClock.setTime(january)
      yield* listening
      yield* team("kim@example.com")
      const limit = monthly("kim@example.com", 5n)
      const refuse = (one: Limit) =>
        Effect.all(
          [1, 2, 3].map(() => during(({ alerts }) => [1, 2].forEach(() => alerts.budgetRefused(one)))),
          { concurrency: "unbounded" }
        )
      yield* refuse(limit)
      const [first, ...others] = yield* told
      assert.deepStrictEqual(others, [])
      assert.deepInclude(first, {
        type: "budget.exceeded",
        tenant: "acme",
        data: {
          owner: "team",
          max_budget: "5",
          spent: "0",
          window_start: "2031-01-01T00:00:00.000Z",
          reset_at: "2031-02-01T00:00:00.000Z",
          actor: "gateway",
          organization_id: "org-1",
          request_id: null,
          resource_id: "kim@example.com",
          resource_type: "team"
        }
      })
      // A raised budget that is used up as well is news, and so is the next month.
      yield* refuse(monthly("kim@example.com", 6n))
      assert.strictEqual((yield* told).length, 2)
      yield* TestClock.setTime(Date.parse("2031-02-01T00:00:00Z"))
      yield* refuse(limit)
      assert.strictEqual((yield* told).length, 3)
      const provenance = yield* Provenance
      assert.deepStrictEqual(yield* provenance.verify("acme"), { entries: 3, broken: undefined })
    }).pipe(Effect.provide(administrationBase()))
  )

  it.effect("tells nobody of budgets whose owner is gone, or that are none", () =>
    Effect.gen(function* () {
      yield* listening
      yield* team("t-1")
      yield* during(({ alerts }) => {
        alerts.budgetRefused(monthly("nobody", 1n))
        alerts.budgetRefused({ ...monthly("t-1", 1n), limit: watchedBudget })
        alerts.budgetRefused(limitOf("key", uuidv7(1), "budget", 1n, Window.Lifetime()))
      })
      assert.deepStrictEqual(yield* told, [])
    }).pipe(Effect.provide(administrationBase()))
  )

  it.effect("tells of a deployment what differs from what was told last, and the same once a minute", () =>
    Effect.gen(function* () {
      yield* TestClock.setTime(january)
      yield* listening
      const types = Effect.map(told, (events) => events.map(({ type }) => type.slice("model.".length)))
      // Two processes notice the same outage and the same recovery.
      yield* during(({ health }) => health("unhealthy"))
      yield* during(({ health }) => health("unhealthy"))
      assert.deepStrictEqual(yield* types, ["unhealthy"])
      yield* TestClock.adjust("5 seconds")
      yield* during(({ health }) => health("recovered"))
      yield* during(({ health }) => health("recovered"))
      assert.deepStrictEqual(yield* types, ["unhealthy", "recovered"])
      yield* TestClock.adjust("5 seconds")
      yield* during(({ health }) => health("unhealthy"))
      yield* TestClock.adjust("59 seconds")
      yield* during(({ health }) => health("unhealthy"))
      assert.deepStrictEqual(yield* types, ["unhealthy", "recovered", "unhealthy"])
      // A process that died had nothing to take back: its successor's news must not be lost for ever.
      yield* TestClock.adjust("1 second")
      yield* during(({ health }) => health("unhealthy"))
      assert.strictEqual((yield* types).length, 4)
      // Several changes in one go end with the last.
      yield* TestClock.adjust("1 second")
      yield* during(({ health }) => {
        health("recovered")
        health("unhealthy")
        health("unhealthy", "d-2")
      })
      assert.deepStrictEqual((yield* types).slice(4).sort(), ["recovered", "unhealthy", "unhealthy"])
      const sql = yield* SqlClient.SqlClient
      assert.deepStrictEqual(yield* sql`SELECT subject, state FROM public.alerts_told ORDER BY subject`, [
        { subject: "d-1", state: "unhealthy" },
        { subject: "d-2", state: "unhealthy" }
      ])
      assert.notInclude(JSON.stringify(yield* told), "secret reason")
    }).pipe(Effect.provide(administrationBase()))
  )

  it.effect("tells once of each model without a price, as it is registered or served", () =>
    Effect.gen(function* () {
      yield* listening
      const models = new Models()
      models.set("priced", true)
      models.set("old", false)
      const named = Effect.map(told, (events) => events.map(({ data }) => data["model"]).sort())
      yield* Effect.all([during(() => undefined, models), during(() => undefined, models)], { concurrency: 2 })
      assert.deepStrictEqual(yield* named, ["old"])
      yield* during(({ alerts }) => {
        models.set("new", false)
        models.set("free", true)
        // One deployment of a priced group may have none.
        alerts.servedUnpriced("priced")
        alerts.servedUnpriced("new")
      }, models)
      yield* during(({ alerts }) => alerts.servedUnpriced("old"), models)
      assert.deepStrictEqual(yield* named, ["new", "old", "priced"])
    }).pipe(Effect.provide(administrationBase()))
  )

  it.effect("waits for a database that is away, and what cannot be written at all holds up nothing else", () =>
    Effect.gen(function* () {
      const away = new SqlError.SqlError({
        reason: new SqlError.ConnectionError({ cause: new Error("gone"), message: "gone", operation: "query" })
      })
      const tried: Array<unknown> = []
      const outbox = Layer.succeed(Outbox, {
        append: ([event]) =>
          Effect.suspend(() => {
            const model = event?.data["model"]
            tried.push(model)
            if (model === "poison") return Effect.die(new Error("poison"))
            return tried.length <= 2 ? Effect.fail(away) : Effect.void
          })
      })
      const models = new Models()
      const process = yield* startProcess(models).pipe(Effect.provide(outbox))
      models.set("first", false)
      models.set("poison", false)
      models.set("last", false)
      // PostgreSQL answers by its own clock: 20 s of it are enough on the busiest machine.
      const turn = TestClock.withLive(Effect.sleep("10 millis"))
      for (let n = 0; n < 2000 && !tried.includes("last"); n++)
        yield* Effect.andThen(TestClock.adjust("100 millis"), turn)
      assert.deepStrictEqual(tried, ["first", "first", "first", "poison", "last"])
      yield* process.end
      assert.strictEqual(tried.length, 5)
    }).pipe(Effect.provide(administrationBase()))
  )
})
