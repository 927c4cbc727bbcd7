import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { TestClock } from "effect/testing"
import type { JsonObject } from "#domain/json.ts"
import { completionTokens } from "#domain/usage.ts"
import { ProviderRouter, type UpstreamCall } from "#services/inference/ProviderRouter.ts"
import { chatCall, collect, Registered, routerLayer, row } from "#test/support/routing.ts"

const registered = () =>
  new Registered([row("1", "chat", { model: "sandbox/chat" }), row("2", "embed", { model: "sandbox/embed" })])

const answerTo = (call: UpstreamCall) =>
  Effect.gen(function* () {
    const router = yield* ProviderRouter
    const answer = yield* router.route(call)
    if (answer._tag === "Streamed") return assert.fail("a stream")
    return { usage: answer.usage, json: JSON.parse(answer.body.toString()) }
  })

const asking = (content: string, more: JsonObject = {}) =>
  chatCall("chat", { body: { model: "chat", messages: [{ role: "user", content }], ...more } })

const weather = {
  type: "function",
  function: {
    name: "get_weather",
    parameters: { type: "object", properties: { city: { type: "string" }, days: { type: "integer", minimum: 1 } } }
  }
}

const embedding = (input: JsonObject["input"] & {}, more: JsonObject = {}) =>
  chatCall("embed", { operation: "embedding", body: { model: "embed", input, ...more } })

const inSandbox = <A, E>(effect: Effect.Effect<A, E, ProviderRouter>) =>
  effect.pipe(Effect.provide(routerLayer(registered())))

describe("sandbox", () => {
  it.effect("answers the same to the same, counts tokens and honours max_tokens and stop", () =>
    inSandbox(
      Effect.gen(function* () {
        const first = yield* answerTo(asking("What is a gateway?"))
        assert.deepStrictEqual((yield* answerTo(asking("What is a gateway?"))).json, first.json)
        assert.strictEqual(first.json.choices[0].message.content, "The sandbox heard: What is a gateway?")
        assert.strictEqual(first.json.choices[0].finish_reason, "stop")
        assert.strictEqual(completionTokens(first.usage!), first.json.usage.completion_tokens)
        const short = yield* answerTo(asking("What is a gateway?", { max_tokens: 3 }))
        assert.strictEqual(short.json.choices[0].finish_reason, "length")
        assert.strictEqual(completionTokens(short.usage!), 3)
        const stopped = yield* answerTo(asking("one two three", { stop: ["two"] }))
        assert.strictEqual(stopped.json.choices[0].message.content, "The sandbox heard: one ")
      })
    )
  )

  it.effect("dates its answers and changes nothing else", () =>
    inSandbox(
      Effect.gen(function* () {
        const { created, ...first } = (yield* answerTo(asking("Hi"))).json
        yield* TestClock.adjust("90 seconds")
        const { created: later, ...second } = (yield* answerTo(asking("Hi"))).json
        assert.deepStrictEqual([created, later], [0, 90])
        assert.deepStrictEqual(second, first)
      })
    )
  )

  it.effect("streams what it would have answered whole", () =>
    inSandbox(
      Effect.gen(function* () {
        const router = yield* ProviderRouter
        const body = { ...asking("Hello, 世界").body, stream: true }
        const answer = yield* router.route(chatCall("chat", { body, stream: true }))
        const whole = yield* Effect.promise(() =>
          answer._tag === "Streamed" ? collect(answer) : assert.fail("no stream")
        )
        assert.strictEqual(whole.end.text(), "The sandbox heard: Hello, 世界")
        assert.isUndefined(whole.end.failure)
        assert.isAbove(completionTokens(whole.end.usage!), 0)
        assert.notInclude(whole.text, "prompt_tokens")
        assert.isAbove(whole.parts.length, 5)
      })
    )
  )

  it.effect("calls tools when it is told to, and answers with what they said", () =>
    inSandbox(
      Effect.gen(function* () {
        const tools = [weather]
        for (const body of [
          asking("Go", { tools, tool_choice: "required" }),
          asking("Go", { tools, tool_choice: { type: "function", function: { name: "get_weather" } } }),
          asking("Please get weather for Rome", { tools })
        ]) {
          const [choice] = (yield* answerTo(body)).json.choices
          assert.strictEqual(choice.finish_reason, "tool_calls")
          assert.strictEqual(choice.message.tool_calls[0].function.name, "get_weather")
          assert.strictEqual(JSON.parse(choice.message.tool_calls[0].function.arguments).days, 1)
        }
        const plain = (yield* answerTo(asking("Good morning", { tools }))).json.choices[0]
        assert.isUndefined(plain.message.tool_calls)
        const messages = [
          { role: "user", content: "get weather" },
          { role: "tool", tool_call_id: "x", content: "Sunny" }
        ]
        const after = yield* answerTo(chatCall("chat", { body: { model: "chat", messages, tools } }))
        assert.strictEqual(after.json.choices[0].message.content, "The tool answered: Sunny")
      })
    )
  )

  it.effect("keeps to a JSON schema", () =>
    inSandbox(
      Effect.gen(function* () {
        const schema = { type: "object", properties: { score: { type: "number" }, label: { enum: ["good", "bad"] } } }
        const format = { type: "json_schema", json_schema: { name: "verdict", schema } }
        const { json } = yield* answerTo(asking("Judge", { response_format: format }))
        assert.deepStrictEqual(JSON.parse(json.choices[0].message.content), { score: 0, label: "good" })
      })
    )
  )

  it.effect("embeds similar texts near each other, as unit vectors, in both encodings", () =>
    inSandbox(
      Effect.gen(function* () {
        const input = ["the cat sat on the mat", "a cat sat on a mat", "quarterly revenue forecast"]
        const { json, usage } = yield* answerTo(embedding(input, { dimensions: 512 }))
        const vectors: ReadonlyArray<ReadonlyArray<number>> = json.data.map(
          (one: { embedding: number[] }) => one.embedding
        )
        const dot = (a: number, b: number) =>
          vectors[a]!.reduce((sum, value, index) => sum + value * vectors[b]![index]!, 0)
        assert.strictEqual(vectors[0]?.length, 512)
        assert.closeTo(dot(0, 0), 1, 1e-5)
        assert.isAbove(dot(0, 1), dot(0, 2) + 0.2)
        assert.isAbove(usage!.input, 0)
        const coded = yield* answerTo(embedding(input, { dimensions: 512, encoding_format: "base64" }))
        const bytes = Buffer.from(coded.json.data[0].embedding, "base64")
        assert.strictEqual(bytes.length, 4 * 512)
        assert.closeTo(bytes.readFloatLE(0), vectors[0]![0]!, 1e-6)
        const refused = yield* Effect.flip(answerTo(embedding(input, { dimensions: 0 })))
        assert.deepInclude({ ...refused }, { code: "unsupported_parameter", param: "dimensions" })
      })
    )
  )

  it.effect("is unusable where it is switched off", () =>
    Effect.gen(function* () {
      const router = yield* ProviderRouter
      const refused = yield* Effect.flip(router.route(asking("Hi")))
      assert.deepInclude({ ...refused }, { status: 400, code: "unsupported_model", param: "model" })
      assert.include(refused.message, "production")
      assert.strictEqual(router.health()[0]?.state, "unusable")
    }).pipe(Effect.provide(routerLayer(registered(), { sandbox: false })))
  )
})
