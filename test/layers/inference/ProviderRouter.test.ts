import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Layer } from "effect"
import { TestClock } from "effect/testing"
import { type GatewayError, RateLimited } from "#domain/errors.ts"
import type { JsonObject } from "#domain/json.ts"
import { promptTokens, completionTokens } from "#domain/usage.ts"
import { providerRouterUndici } from "#layers/inference/ProviderRouterUndici.ts"
import { BudgetLedger } from "#services/budgets/BudgetLedger.ts"
import {
  type Answer,
  type HealthChange,
  ProviderRouter,
  type UpstreamCall
} from "#services/inference/ProviderRouter.ts"
import { Transport, type TransportReceiver } from "#services/inference/Transport.ts"
import { stubText, stubUsage } from "#test/support/openai-answers.ts"
import { chatCall, collect, Registered, routerLayer, row } from "#test/support/routing.ts"
import { StubUpstream } from "#test/support/StubUpstream.ts"

interface World {
  readonly stub: StubUpstream
  readonly registered: Registered
  readonly route: (call: UpstreamCall) => Effect.Effect<Answer, GatewayError>
  readonly router: ProviderRouter["Service"]
  readonly changes: Array<HealthChange>
}

/** A stub with one deployment `m`, unless `rows` says otherwise. */
const world = <A, E>(
  run: (world: World) => Effect.Effect<A, E>,
  rows: (base: JsonObject) => Registered = (base) => new Registered([row("d1", "m", { ...base, model: "openai/up" })]),
  options: Parameters<typeof routerLayer>[1] = {}
) =>
  Effect.gen(function* () {
    const stub = yield* StubUpstream.scoped()
    const registered = rows({ api_base: stub.url, api_key: "sk-upstream-secret" })
    return yield* Effect.gen(function* () {
      const router = yield* ProviderRouter
      const changes: Array<HealthChange> = []
      yield* router.onHealthChange((change) => changes.push(change))
      return yield* run({ stub, registered, router, changes, route: (call) => router.route(call) })
    }).pipe(Effect.provide(routerLayer(registered, options)))
  })

const buffered = (answer: Answer) => {
  assert.strictEqual(answer._tag, "Buffered")
  return answer._tag === "Buffered" ? answer : assert.fail()
}

const streamed = (answer: Answer) => (answer._tag === "Streamed" ? answer : assert.fail("not a stream"))

const stream = (model: string, more: Partial<UpstreamCall> = {}) => chatCall(model, { stream: true, ...more })

const sent = (stub: StubUpstream, index = -1) => stub.requests.at(index)?.json as Record<string, unknown>

const two =
  (more: JsonObject = {}, second: JsonObject = {}) =>
  (base: JsonObject) =>
    new Registered([
      row("d1", "m", { ...base, model: "openai/one", priority: 1, max_retries: 1, ...more }),
      row("d2", "m", { ...base, model: "openai/two", priority: 2, ...second })
    ])

describe("ProviderRouter", () => {
  it.effect("passes a whole answer on byte for byte and reads its usage", () =>
    world(({ route, stub }) =>
      Effect.gen(function* () {
        const body = { model: "m", messages: [{ role: "user", content: "Hi" }], vendor_field: { deep: [1] } }
        const answer = buffered(yield* route(chatCall("m", { body })))
        assert.strictEqual(JSON.parse(answer.body.toString()).choices[0].message.content, stubText)
        assert.strictEqual(promptTokens(answer.usage!), stubUsage.prompt_tokens)
        assert.strictEqual(completionTokens(answer.usage!), stubUsage.completion_tokens)
        assert.deepStrictEqual(answer.texts(), [stubText])
        assert.deepStrictEqual(sent(stub), { ...body, model: "up" })
        assert.strictEqual(stub.requests[0]?.headers.authorization, "Bearer sk-upstream-secret")
        assert.strictEqual(answer.served.deploymentId, "d1")
        assert.strictEqual(answer.served.upstreamModel, "up")
      })
    )
  )

  it.effect("wraps a legacy prompt as one user message, and embeds", () =>
    world(({ route, stub }) =>
      Effect.gen(function* () {
        const body = { model: "m", prompt: "Once", max_tokens: 7 }
        const answer = buffered(yield* route(chatCall("m", { operation: "completion", body })))
        assert.strictEqual(JSON.parse(answer.body.toString()).object, "chat.completion")
        assert.deepStrictEqual(sent(stub), {
          model: "up",
          max_tokens: 7,
          messages: [{ role: "user", content: "Once" }]
        })
        const list = chatCall("m", { operation: "completion", body: { model: "m", prompt: ["a", "b"] } })
        const refused = yield* Effect.flip(route(list))
        assert.deepInclude({ ...refused }, { code: "unsupported_parameter", param: "prompt" })
        const input = Array.from({ length: 200 }, (_, index) => `text ${index}`)
        const embedding = chatCall("m", { operation: "embedding", body: { model: "m", input } })
        const vectors = buffered(yield* route(embedding))
        assert.isAbove(promptTokens(vectors.usage!), 0)
        assert.strictEqual(stub.requests.at(-1)?.path, "/v1/embeddings")
      })
    )
  )

  it.effect("always asks for the usage of a stream and takes it out where the client did not", () =>
    world(({ route, stub }) =>
      Effect.gen(function* () {
        for (const variant of [{}, { crlf: true }, { comments: true }, { multiline: true }, { splitUtf8: true }]) {
          stub.script("up", variant)
          const plain = yield* route(stream("m")).pipe(
            Effect.andThen((answer) => Effect.promise(() => collect(streamed(answer))))
          )
          assert.deepStrictEqual(sent(stub)["stream_options"], { include_usage: true })
          assert.notInclude(plain.text, "prompt_tokens")
          assert.notInclude(plain.text, "[DONE]")
          assert.include(plain.text, '"usage":null')
          assert.strictEqual(promptTokens(plain.end.usage!), 420)
          assert.isUndefined(plain.end.failure)
          assert.isAbove(plain.end.text().length, 10)
          assert.notInclude(plain.end.text(), "\ufffd")
          const asked = yield* route(stream("m", { wantsUsage: true })).pipe(
            Effect.andThen((answer) => Effect.promise(() => collect(streamed(answer))))
          )
          assert.include(asked.text, '"prompt_tokens":420')
        }
        yield* Effect.promise(() => stub.until((stub) => stub.open === 0))
      })
    )
  )

  it.effect("tries again after 500, 429 and broken connections, then passes the answer", () =>
    world(({ route, stub }) =>
      Effect.gen(function* () {
        for (const behaviour of [
          { status: 500 },
          { status: 503 },
          { status: 429 },
          { status: 408 },
          { fault: "reset" },
          { fault: "garbage" },
          { fault: "invalid-json" },
          { fault: "reset-body" },
          { fault: "short-length" },
          { fault: "long-length" }
        ] as const) {
          stub.script("up", behaviour, {})
          const before = stub.received
          assert.strictEqual(buffered(yield* route(chatCall("m"))).texts()[0], stubText, JSON.stringify(behaviour))
          assert.strictEqual(stub.received - before, 2, JSON.stringify(behaviour))
        }
      })
    )
  )

  it.effect("gives up after max_retries and tells what the upstream is to blame for", () =>
    world(
      ({ route, stub }) =>
        Effect.gen(function* () {
          const failing = Effect.fnUntraced(function* (behaviour: Parameters<StubUpstream["script"]>[1]) {
            stub.script("up", behaviour)
            const before = stub.received
            const error = yield* Effect.flip(route(chatCall("m")))
            return { ...error, status: error.status, message: error.message, tries: stub.received - before }
          })
          assert.deepInclude(yield* failing({ status: 500 }), { status: 502, code: "upstream_error", tries: 2 })
          assert.deepInclude(yield* failing({ fault: "reset" }), { status: 502, tries: 2 })
          const limited = yield* failing({ status: 429, retryAfter: "30" })
          assert.deepInclude(limited, { status: 429, code: "rate_limit_exceeded", retryAfter: 30, tries: 1 })
          assert.deepInclude(yield* failing({ status: 400 }), { status: 400, tries: 1 })
          assert.deepInclude(yield* failing({ status: 404 }), { status: 400, code: "unsupported_model", tries: 1 })
          const unauthorized = yield* failing({
            status: 401,
            body: '{"error":{"message":"Incorrect API key provided: sk-upstream-secret"}}'
          })
          assert.deepInclude(unauthorized, { status: 502, tries: 1 })
          assert.notInclude(unauthorized.message, "sk-")
          const quoting = yield* failing({
            status: 400,
            body: '{"error":{"message":"temperature is too hot for sk-upstream-secret","param":"temperature"}}'
          })
          assert.deepInclude(quoting, { code: "unsupported_parameter", param: "temperature" })
          assert.strictEqual(quoting.message, "temperature is too hot for [redacted]")
          const long = yield* failing({
            status: 400,
            body: JSON.stringify({ error: { message: `maximum context length ${"x".repeat(9_000)}` } })
          })
          assert.strictEqual(long.code, "context_length_exceeded")
          assert.isAtMost(long.message.length, 1_000)
        }),
      (base) => new Registered([row("d1", "m", { ...base, model: "openai/up", max_retries: 1 })]),
      { breaker: { threshold: 100, openFor: 1, longestOpen: 1 } }
    )
  )

  it.effect("waits as long as Retry-After says", () =>
    world(({ route, stub }) =>
      Effect.gen(function* () {
        stub.script("up", { status: 429, headers: { "retry-after-ms": "60" } }, {})
        const before = performance.now()
        buffered(yield* route(chatCall("m")))
        assert.isAtLeast(performance.now() - before, 59)
      })
    )
  )

  it.effect("goes on to the next deployment, then to the fallbacks, without going round in circles", () =>
    world(
      ({ route, stub }) =>
        Effect.gen(function* () {
          stub.script("one", { status: 500 })
          stub.script("two", { status: 401 })
          stub.script("three", { status: 500 })
          const served = buffered(yield* route(chatCall("a"))).served
          assert.strictEqual(served.upstreamModel, "four")
          const models = () => stub.requests.map((request) => request.model)
          assert.deepStrictEqual(models(), ["one", "one", "two", "three", "four"])
          stub.script("four", { status: 500 })
          assert.strictEqual((yield* Effect.flip(route(chatCall("a")))).status, 502)
          assert.strictEqual(stub.received, 10)
        }),
      (base) =>
        new Registered([
          row("1", "a", { ...base, model: "openai/one", priority: 1, max_retries: 1, fallbacks: ["b", "a"] }),
          row("2", "a", { ...base, model: "openai/two", priority: 2, max_retries: 0 }),
          row("3", "b", { ...base, model: "openai/three", max_retries: 0, fallbacks: ["a", "c"] }),
          row("4", "c", { ...base, model: "openai/four", max_retries: 0, fallbacks: ["b"] })
        ])
    )
  )

  it.effect("treats an error frame before the first event as a failed try", () =>
    world(({ route, stub }) =>
      Effect.gen(function* () {
        const first = JSON.stringify({ error: { message: "busy", type: "server_error" } })
        stub.script(
          "up",
          { status: 200, body: `data: ${first}\n\n`, headers: { "content-type": "text/event-stream" } },
          {}
        )
        const answer = yield* route(stream("m"))
        const whole = yield* Effect.promise(() => collect(streamed(answer)))
        assert.isUndefined(whole.end.failure)
      })
    )
  )

  it.effect("ends a stream that breaks with a failure, keeps what was generated and never starts it over", () =>
    world(
      ({ route, stub }) =>
        Effect.gen(function* () {
          for (const [fault, status] of [
            ["reset-body", 502],
            ["end-body", 502],
            ["error-frame", 502],
            ["invalid-json", 502],
            ["hang-body", 504]
          ] as const) {
            stub.script("up", { fault, chunks: 6 })
            const before = stub.received
            const answer = yield* route(stream("m"))
            const broken = yield* Effect.promise(() => collect(streamed(answer)))
            assert.strictEqual(broken.end.failure?.status, status, fault)
            assert.isAbove(broken.end.text().length, 0, fault)
            assert.isUndefined(broken.end.usage)
            assert.strictEqual(stub.received - before, 1)
            yield* Effect.promise(() => stub.until((stub) => stub.open === 0))
          }
        }),
      (base) => new Registered([row("d1", "m", { ...base, model: "openai/up", stream_timeout: 0.15 })])
    )
  )

  it.effect("keeps deadlines: the whole answer, the first event, between events", () =>
    world(
      ({ route, stub }) =>
        Effect.gen(function* () {
          stub.script("up", { fault: "hang" })
          assert.strictEqual((yield* Effect.flip(route(chatCall("m")))).status, 504)
          assert.strictEqual((yield* Effect.flip(route(stream("m")))).status, 504)
          stub.script("up", { fault: "hang-body" })
          assert.strictEqual((yield* Effect.flip(route(chatCall("m")))).status, 504)
          yield* Effect.promise(() => stub.until((stub) => stub.open === 0 && stub.aborted === 3))
          stub.script("up", { delay: 40, chunks: 100 })
          const slow = yield* route(stream("m"))
          const cut = yield* Effect.promise(() => collect(streamed(slow)))
          assert.strictEqual(cut.end.failure?.status, 504)
          assert.isAbove(cut.parts.length, 3)
          yield* Effect.promise(() => stub.until((stub) => stub.open === 0))
        }),
      (base) => new Registered([row("d1", "m", { ...base, model: "openai/up", timeout: 0.3, stream_timeout: 0.1 })])
    )
  )

  it.effect("cancels the upstream call when it is interrupted, and when a stream is given up", () =>
    world(({ route, router, stub }) =>
      Effect.gen(function* () {
        stub.script("up", { fault: "hang" })
        const waiting = yield* Effect.forkChild(route(chatCall("m")))
        yield* Effect.promise(() => stub.until((stub) => stub.open === 1))
        assert.strictEqual(router.health()[0]?.inFlight, 1)
        yield* Fiber.interrupt(waiting)
        yield* Effect.promise(() => stub.until((stub) => stub.aborted === 1 && stub.openSockets === 0))
        assert.strictEqual(router.health()[0]?.inFlight, 0)

        stub.script("up", { fault: "hang-body", chunks: 10 })
        const answer = streamed(yield* route(stream("m")))
        const given = yield* Deferred.make<string>()
        const control = answer.start({
          chunk: () => {
            queueMicrotask(() => Effect.runSync(Deferred.succeed(given, control.cancel().text())))
          },
          end: () => assert.fail("a cancelled stream has no end")
        })
        assert.match(yield* Deferred.await(given), /^A /)
        yield* Effect.promise(() => stub.until((stub) => stub.aborted === 2 && stub.openSockets === 0))

        const unclaimed = streamed(yield* route(stream("m")))
        unclaimed.cancel()
        yield* Effect.promise(() => stub.until((stub) => stub.aborted === 3 && stub.openSockets === 0))
        assert.strictEqual(router.health()[0]?.inFlight, 0)
      })
    )
  )

  it.effect("frees the deployment once when a stream is given up while it is told of its last part", () =>
    Effect.gen(function* () {
      const receivers: Array<TransportReceiver> = []
      const control = { pause: () => undefined, resume: () => undefined, abort: () => undefined }
      const transport = Layer.succeed(Transport, {
        send: (_origin, _request, receiver) => {
          receivers.push(receiver)
          return control
        }
      })
      const registered = new Registered([row("d1", "m", { model: "openai/up", api_base: "http://up" })])
      const layer = providerRouterUndici({ sandbox: false }).pipe(Layer.provide([transport, registered.layer]))
      const event = `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content: "Hi" } }] })}\n\n`
      yield* Effect.gen(function* () {
        const router = yield* ProviderRouter
        for (const last of [`${event}data: [DONE]\n\n`, `${event}data: {"error":{"message":"broken"}}\n\n`]) {
          const routing = yield* Effect.forkChild(router.route(stream("m")), { startImmediately: true })
          const receiver = receivers.pop()!
          receiver.head(200, { "content-type": "text/event-stream" })
          receiver.data(Buffer.from(event))
          let parts = 0
          const running = streamed(yield* Fiber.join(routing)).start({
            chunk: () => {
              parts += 1
              if (parts === 2) running.cancel()
            },
            end: () => assert.fail("a cancelled stream has no end")
          })
          yield* Effect.promise(() => Promise.resolve())
          receiver.data(Buffer.from(last))
          assert.strictEqual(parts, 2)
          assert.deepInclude(router.health()[0], { inFlight: 0, problem: null })
        }
      }).pipe(Effect.provide(layer))
    })
  )

  it.effect("aborts a stream that nobody takes", () =>
    world(
      ({ route, router, stub }) =>
        Effect.gen(function* () {
          stub.script("up", { fault: "hang-body", chunks: 10 })
          streamed(yield* route(stream("m")))
          yield* Effect.promise(() => stub.until((stub) => stub.aborted === 1))
          assert.strictEqual(router.health()[0]?.inFlight, 0)
        }),
      (base) => new Registered([row("d1", "m", { ...base, model: "openai/up", stream_timeout: 0.05 })])
    )
  )

  it.effect("holds a paused stream back and goes on where it was", () =>
    world(({ route, stub }) =>
      Effect.gen(function* () {
        stub.script("up", { chunks: 50 })
        const answer = streamed(yield* route(stream("m")))
        let pauses = 0
        const whole = yield* Effect.promise(() =>
          collect(answer, (_, control) => {
            if (pauses++ > 5) return
            queueMicrotask(() => {
              // Whoever passes the control on may take it apart.
              const { pause, resume } = control
              pause()
              setImmediate(() => resume())
            })
          })
        )
        assert.isUndefined(whole.end.failure)
        assert.strictEqual(whole.text.split("\n\n").length - 1, 52)
      })
    )
  )

  it.effect("takes an unhealthy deployment out, probes it with one call and brings it back", () =>
    world(
      ({ changes, route, router, stub }) =>
        Effect.gen(function* () {
          stub.script("up", { status: 500 })
          for (let call = 0; call < 3; call += 1) yield* Effect.exit(route(chatCall("m")))
          assert.deepStrictEqual(
            changes.map((change) => change.state),
            ["unhealthy"]
          )
          const refused = yield* Effect.flip(route(chatCall("m")))
          assert.deepInclude({ ...refused }, { code: "overloaded", retryAfter: 1 })
          assert.strictEqual(stub.received, 3)
          assert.strictEqual(router.health()[0]?.state, "unhealthy")

          yield* TestClock.adjust(1_000)
          yield* Effect.exit(route(chatCall("m")))
          assert.strictEqual(stub.received, 4)
          yield* TestClock.adjust(1_500)
          assert.strictEqual((yield* Effect.flip(route(chatCall("m")))).code, "overloaded")

          yield* TestClock.adjust(500)
          const gate = Promise.withResolvers<void>()
          stub.script("up", { gate: gate.promise }, {})
          const probe = yield* Effect.forkChild(route(chatCall("m")))
          yield* Effect.promise(() => stub.until((stub) => stub.received === 5))
          assert.strictEqual(router.health()[0]?.state, "probing")
          assert.strictEqual((yield* Effect.flip(route(chatCall("m")))).code, "overloaded")
          gate.resolve()
          buffered(yield* Fiber.join(probe))
          assert.strictEqual(router.health()[0]?.state, "healthy")
          assert.deepStrictEqual(
            changes.map((change) => change.state),
            ["unhealthy", "recovered"]
          )
        }),
      (base) => new Registered([row("d1", "m", { ...base, model: "openai/up", max_retries: 0 })]),
      { breaker: { threshold: 3, openFor: 1_000, longestOpen: 60_000 } }
    )
  )

  it.effect("keeps to the best priority, and spreads over equals by load and weight", () =>
    world(
      ({ route, stub }) =>
        Effect.gen(function* () {
          for (let call = 0; call < 40; call += 1) yield* route(chatCall("m"))
          const count = (model: string) => stub.requests.filter((request) => request.model === model).length
          assert.deepStrictEqual([count("one"), count("two"), count("three")], [30, 10, 0])
          const gate = Promise.withResolvers<void>()
          for (const model of ["one", "two"]) stub.script(model, { gate: gate.promise })
          const calls = yield* Effect.forkChild(
            Effect.all(
              Array.from({ length: 8 }, () => route(chatCall("m"))),
              { concurrency: "unbounded" }
            )
          )
          yield* Effect.promise(() => stub.until((stub) => stub.open === 8))
          assert.deepStrictEqual([count("one"), count("two")], [36, 12])
          gate.resolve()
          yield* Fiber.join(calls)
        }),
      (base) =>
        new Registered([
          row("1", "m", { ...base, model: "openai/one", weight: 3 }),
          row("2", "m", { ...base, model: "openai/two", weight: 1 }),
          row("3", "m", { ...base, model: "openai/three", priority: 2 })
        ])
    )
  )

  it.effect("follows changes of models and credentials, and keeps the health of what did not change", () =>
    world(
      ({ registered, route, router, stub }) =>
        Effect.gen(function* () {
          buffered(yield* route(chatCall("m")))
          assert.strictEqual(stub.requests[0]?.headers.authorization, "Bearer first-key")
          const { responseTimeMs } = router.health()[0]!
          assert.isNotNull(responseTimeMs)
          registered.change([...registered.rows, row("d2", "n", { model: "openai/gpt-4o" })])
          assert.strictEqual(router.health()[0]?.responseTimeMs, responseTimeMs)
          assert.strictEqual(router.health()[1]?.state, "unusable")
          assert.strictEqual((yield* Effect.flip(route(chatCall("n")))).code, "upstream_error")
          registered.change(registered.rows, { cred: { api_key: "second-key" } })
          buffered(yield* route(chatCall("m")))
          assert.strictEqual(stub.requests[1]?.headers.authorization, "Bearer second-key")
          registered.change([])
          assert.isUndefined(router.find("m"))
          assert.strictEqual((yield* Effect.flip(route(chatCall("m")))).code, "model_not_found")
        }),
      (base) =>
        new Registered([row("d1", "m", { api_base: base["api_base"]!, model: "openai/up", credential_name: "cred" })], {
          cred: { api_key: "first-key" }
        })
    )
  )

  it.effect("refuses what no deployment of the model can do", () =>
    world(({ route, router }) =>
      Effect.gen(function* () {
        const refused = yield* Effect.flip(route(chatCall("m", { operation: "messages" })))
        assert.deepInclude({ ...refused }, { code: "unsupported_model", param: "model" })
        assert.isTrue(router.find("m")?.operations.has("chat"))
        assert.isFalse(router.find("m")?.operations.has("messages"))
      })
    )
  )

  it.effect(
    "reserves a deployment's own limits, goes on to the next when they are reached, and settles what was used",
    () =>
      Effect.suspend(() => {
        const log: Array<string> = []
        const ledger = Layer.mock(BudgetLedger, {
          tryReserve: () => undefined,
          posted: () => undefined,
          quota: () => ({ requests: undefined, tokens: undefined, budgetRemaining: undefined }),
          reserve: (limits) =>
            log.filter((entry) => entry === "reserve").length >= 2
              ? Effect.fail(new RateLimited({ code: "rate_limit_exceeded", message: "own", retryAfter: 9 }))
              : Effect.sync(() => {
                  assert.deepStrictEqual(
                    limits.map((limit) => limit.account),
                    ["requests:deployment:d1", "tokens:deployment:d1"]
                  )
                  log.push("reserve")
                  return {
                    settle: ({ tokens }) => {
                      log.push(`settle ${tokens}`)
                      return []
                    },
                    release: () => void log.push("release")
                  }
                })
        })
        return world(
          ({ registered, route, stub }) =>
            Effect.gen(function* () {
              assert.strictEqual(buffered(yield* route(chatCall("m"))).served.deploymentId, "d1")
              stub.script("one", { status: 500 })
              assert.strictEqual(buffered(yield* route(chatCall("m"))).served.deploymentId, "d2")
              assert.strictEqual(buffered(yield* route(chatCall("m"))).served.deploymentId, "d2")
              assert.deepStrictEqual(log, ["reserve", "settle 480", "reserve", "release"])
              registered.change(registered.rows.slice(0, 1))
              const limited = yield* Effect.flip(route(chatCall("m")))
              assert.deepInclude({ ...limited }, { code: "rate_limit_exceeded", retryAfter: 9 })
            }),
          two({ rpm: 2, tpm: 1_000 })
        ).pipe(Effect.provide(ledger))
      })
  )

  it.effect("leaves nothing behind after a storm of faults and interruptions", () =>
    world(
      ({ route, router, stub }) =>
        Effect.gen(function* () {
          stub.script("one", {}, { fault: "reset" }, { status: 500 }, { fault: "reset-body" }, { status: 429 }, {})
          const calls = Array.from({ length: 60 }, (_, index) =>
            route(index % 2 === 0 ? chatCall("m") : stream("m")).pipe(
              Effect.andThen((answer) =>
                answer._tag === "Buffered"
                  ? Effect.void
                  : index % 3 === 0
                    ? Effect.sync(() => void answer.cancel())
                    : Effect.promise(() => collect(answer))
              ),
              Effect.exit
            )
          )
          const exits = yield* Effect.all(calls, { concurrency: 20 })
          assert.isAbove(exits.filter(Exit.isSuccess).length, 50)
          yield* Effect.promise(() => stub.until((stub) => stub.open === 0))
          assert.deepStrictEqual(
            router.health().map((one) => one.inFlight),
            [0, 0]
          )
        }),
      two()
    )
  )
})
