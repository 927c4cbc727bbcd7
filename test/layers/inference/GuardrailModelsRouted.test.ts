import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer } from "effect"
import { type GatewayError, RateLimited, UpstreamTimeout } from "#domain/errors.ts"
import { limitOf, type Limit, Window } from "#domain/limits.ts"
import { type ApiKeyPrincipal, masterKeyPrincipal } from "#domain/principal.ts"
import { priceOf, type Usage, usageOf } from "#domain/usage.ts"
import * as GuardrailModelsRouted from "#layers/inference/GuardrailModelsRouted.ts"
import { BudgetLedger, type Consumption, type Demand } from "#services/budgets/BudgetLedger.ts"
import { Alerts } from "#services/callbacks/Alerts.ts"
import { GuardrailModels, type GuardrailQuestion } from "#services/guardrails/GuardrailModels.ts"
import { type Answer, ProviderRouter, type RoutableModel } from "#services/inference/ProviderRouter.ts"
import { TokenCounter } from "#services/tokens/TokenCounter.ts"
import { type Outcome, UsageLedger } from "#services/usage/UsageLedger.ts"

const price = priceOf({ input_cost_per_token: 0.001, output_cost_per_token: 0.01 })!

const judge: RoutableModel = {
  name: "judge",
  price,
  maxOutputTokens: 1000,
  maxInputTokens: undefined,
  operations: new Set(["chat"])
}

const served = { deploymentId: "d", provider: "openai", upstreamModel: "judge", price }

const buffered = (usage: Usage | undefined): Answer => ({
  _tag: "Buffered",
  served,
  contentType: "application/json",
  body: Buffer.from('{"id": "x"}'),
  usage,
  texts: () => ["an answer"]
})

const budget = limitOf("key", "k", "budget", 1_000_000_000n, Window.Lifetime())
const principal: ApiKeyPrincipal = {
  _tag: "ApiKey",
  key: {
    id: "k",
    tenant: "acme",
    keyName: null,
    keyAlias: null,
    userId: "u",
    teamId: null,
    organizationId: "o",
    models: new Set(["other"]),
    expiresAt: undefined,
    limits: [
      budget,
      limitOf("key", "k", "requests", 1n, Window.Minute()),
      limitOf("key", "k", "tokens", 1n, Window.Minute())
    ]
  }
}

const question = (more: Partial<GuardrailQuestion> = {}): GuardrailQuestion => ({
  caller: { principal, requestId: "request-1" },
  operation: "chat",
  model: "judge",
  body: { model: "judge", messages: [], max_tokens: 50 },
  ...more
})

/** What the ledgers saw of one question. */
interface Seen {
  readonly reserved: Array<{ readonly limits: ReadonlyArray<Limit>; readonly demand: Demand }>
  readonly settled: Array<Consumption | "released">
  readonly outcomes: Array<Outcome>
  readonly alerts: Array<string>
}

const ask = (
  route: Effect.Effect<Answer, GatewayError>,
  options: {
    readonly question?: GuardrailQuestion
    readonly full?: boolean
    readonly seen?: Seen
    /** Nano-dollars that are left. */
    readonly left?: bigint
    readonly model?: RoutableModel
  } = {}
) => {
  const seen: Seen = options.seen ?? { reserved: [], settled: [], outcomes: [], alerts: [] }
  const environment = GuardrailModelsRouted.layer.pipe(
    Layer.provide([
      Layer.mock(ProviderRouter, {
        find: (name) => (name === "judge" ? (options.model ?? judge) : undefined),
        route: () => route,
        begin: () => () => undefined,
        health: () => []
      }),
      Layer.mock(BudgetLedger, {
        tryReserve: () => undefined,
        posted: () => undefined,
        quota: () => ({ requests: undefined, tokens: undefined, budgetRemaining: undefined }),
        reserve: (limits, demand) =>
          Effect.suspend(() => {
            seen.reserved.push({ limits, demand })
            if (options.left !== undefined && demand.nanos > options.left) {
              return Effect.fail(new RateLimited({ code: "budget_exceeded", message: "spent", limit: budget }))
            }
            return Effect.succeed({
              settle: (actual) => {
                seen.settled.push(actual)
                return [{ account: budget.account, windowStart: 0, nanos: actual.nanos }]
              },
              release: () => void seen.settled.push("released")
            })
          })
      }),
      Layer.mock(UsageLedger, {
        isFull: () => options.full === true,
        append: (outcome, written) => {
          seen.outcomes.push(outcome)
          written()
        },
        record: (outcome) => Effect.sync(() => void seen.outcomes.push(outcome))
      }),
      Layer.succeed(Alerts, {
        budgetRefused: ({ account }) => void seen.alerts.push(`exceeded ${account}`),
        servedUnpriced: (model) => void seen.alerts.push(`unpriced ${model}`)
      }),
      Layer.mock(TokenCounter, { count: () => Effect.succeed(7), countRequest: () => Effect.succeed(11) })
    ])
  )
  const asked = Effect.flatMap(GuardrailModels, (models) => models.ask(options.question ?? question()))
  return Effect.map(Effect.exit(Effect.provide(asked, environment)), (exit) => ({ ...seen, exit }))
}

describe("models that guardrails ask", () => {
  it.effect("are reserved on budgets alone, settled and recorded under the caller", () =>
    Effect.gen(function* () {
      const { exit, outcomes, reserved, settled } = yield* ask(
        Effect.succeed(buffered(usageOf({ input: 10, output: 2 })))
      )
      assert.deepStrictEqual(exit._tag === "Success" && exit.value, { body: { id: "x" }, texts: ["an answer"] })
      assert.deepStrictEqual(reserved[0]!.limits, [budget])
      const bound = Buffer.byteLength(JSON.stringify(question().body))
      assert.strictEqual(reserved[0]!.demand.nanos, BigInt(bound) * 1_000_000n + 50n * 10_000_000n)
      assert.deepStrictEqual(settled, [{ nanos: 30_000_000n, tokens: 12 }])
      assert.lengthOf(outcomes, 1)
      assert.deepInclude(outcomes[0], {
        tenant: "acme",
        keyId: "k",
        userId: "u",
        organizationId: "o",
        requestId: "request-1",
        operation: "chat",
        model: "judge",
        status: "success",
        cost: 30_000_000n,
        guardrails: [],
        charges: [{ account: budget.account, windowStart: 0, nanos: 30_000_000n }]
      })
    })
  )

  it.effect("are counted where the upstream reports nothing, and free of budgets for the master key", () =>
    Effect.gen(function* () {
      const master = question({ caller: { principal: masterKeyPrincipal, requestId: "request-1" } })
      const { outcomes, reserved } = yield* ask(Effect.succeed(buffered(undefined)), { question: master })
      assert.lengthOf(reserved, 0)
      assert.deepInclude(outcomes[0], {
        tenant: "",
        keyId: null,
        usage: usageOf({ input: 11, output: 7, estimated: true })
      })
    })
  )

  it.effect("release what they reserved when they fail, and say so", () =>
    Effect.gen(function* () {
      const late = new UpstreamTimeout({ code: "upstream_timeout", message: "late" })
      const failed = yield* ask(Effect.fail(late))
      assert.isTrue(failed.exit._tag === "Failure")
      assert.deepStrictEqual(failed.settled, ["released"])
      assert.deepInclude(failed.outcomes[0], { status: "error", errorCode: "upstream_timeout", cost: 0n })
      const died = yield* ask(Effect.die("broken"))
      assert.deepStrictEqual(died.settled, ["released"])
      assert.deepInclude(died.outcomes[0], { status: "error", errorCode: "internal_error" })
    })
  )

  it.effect("are refused before anything is reserved: an unknown model, a full journal", () =>
    Effect.gen(function* () {
      const unknown = yield* ask(Effect.never, { question: question({ model: "nobody" }) })
      const full = yield* ask(Effect.never, { full: true })
      for (const { exit, outcomes, reserved } of [unknown, full]) {
        assert.isTrue(exit._tag === "Failure")
        assert.lengthOf(reserved, 0)
        assert.lengthOf(outcomes, 0)
      }
    })
  )

  it.effect("are refused by the exact count alone, and callbacks hear of the budget as of any call's", () =>
    Effect.gen(function* () {
      const route = Effect.succeed(buffered(usageOf({ input: 10, output: 2 })))
      // 11 tokens of the prompt and 50 of the answer.
      const most = 11n * 1_000_000n + 50n * 10_000_000n
      const fits = yield* ask(route, { left: most })
      assert.isTrue(fits.exit._tag === "Success")
      assert.deepStrictEqual([fits.reserved.length, fits.alerts], [2, []])
      const exceeded = yield* ask(route, { left: most - 1n })
      assert.isTrue(exceeded.exit._tag === "Failure")
      assert.deepStrictEqual(exceeded.alerts, [`exceeded ${budget.account}`])
    })
  )

  it.effect("are told of when nobody knows their price", () =>
    Effect.gen(function* () {
      const route = Effect.succeed({
        ...buffered(usageOf({ input: 10, output: 2 })),
        served: { ...served, price: undefined }
      })
      const { alerts } = yield* ask(route, { model: { ...judge, price: undefined } })
      assert.deepStrictEqual(alerts, ["unpriced judge"])
    })
  )

  it.effect("are charged for the question when nobody waits for the answer any more", () =>
    Effect.gen(function* () {
      const seen: Seen = { reserved: [], settled: [], outcomes: [], alerts: [] }
      const sent = yield* Deferred.make<void>()
      const route = Effect.andThen(Deferred.succeed(sent, undefined), Effect.never)
      const fiber = yield* Effect.forkChild(ask(route, { seen }))
      yield* Deferred.await(sent)
      yield* Fiber.interrupt(fiber)
      assert.lengthOf(seen.settled, 1)
      assert.deepInclude(seen.outcomes[0], { status: "cancelled" })
      assert.strictEqual(seen.outcomes[0]!.usage.input, 11)
      assert.isTrue(seen.outcomes[0]!.usage.estimated)
    })
  )
})
