/**
 * What the router costs per call, in CPU of this process, over undici's own pool: the same calls against the same stub,
 * in turns. `node bench/router.ts [calls]`.
 */
import { Effect, Layer, ManagedRuntime } from "effect"
import { Pool } from "undici"
import type { JsonObject } from "#domain/json.ts"
import { providerRouterUndici } from "#layers/inference/ProviderRouterUndici.ts"
import { transportUndici } from "#layers/inference/TransportUndici.ts"
import { ProviderRouter, type StreamedAnswer } from "#services/inference/ProviderRouter.ts"
import { CredentialVault } from "#services/models/CredentialVault.ts"
import { ModelRegistry } from "#services/models/ModelRegistry.ts"
import { loadCore, start, stop } from "./processes.ts"
import type { UpstreamState } from "./upstream.ts"

const calls = Number(process.argv[2] ?? 20_000)
const streams = Math.ceil(calls / 10)
const concurrency = 16
const rounds = 4

const upstream = start({ core: loadCore, args: ["bench/upstream.ts"], ipc: true })
const { port } = await new Promise<UpstreamState>((resolve) => upstream.process.once("message", resolve))
const base = `http://127.0.0.1:${port}`

const body: JsonObject = {
  model: "m",
  messages: [
    { role: "system", content: "You answer briefly. ".repeat(20) },
    { role: "user", content: "What is a gateway? ".repeat(80) }
  ],
  temperature: 0.2
}
const streamBody: JsonObject = { ...body, stream: true }

const services = Layer.mergeAll(
  Layer.mock(ModelRegistry, {
    snapshot: () => [
      {
        id: "d1",
        modelName: "m",
        gatewayParams: { model: "openai/up?chunks=100", api_base: `${base}/v1` },
        modelInfo: {},
        createdAt: 0
      }
    ],
    onChange: () => Effect.void
  }),
  Layer.mock(CredentialVault, { reveal: () => undefined, onChange: () => Effect.void })
)
const runtime = ManagedRuntime.make(
  providerRouterUndici({ sandbox: false }).pipe(Layer.provide([transportUndici(), services]))
)
const router = await runtime.runPromise(ProviderRouter.use(Effect.succeed))
const runFork = Effect.runForkWith(await runtime.runPromise(Effect.context<never>()))
const pool = new Pool(base, { connections: concurrency })

type Call = (done: () => void) => void

const rawCall =
  (sent: JsonObject): Call =>
  (done) => {
    const parts: Array<Buffer> = []
    pool.dispatch(
      {
        path: "/v1/chat/completions",
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({
          ...sent,
          model: "up?chunks=100",
          ...(sent["stream"] === true ? { stream_options: { include_usage: true } } : {})
        })
      },
      {
        onRequestStart: () => undefined,
        onResponseStart: () => undefined,
        onResponseData: (_, chunk) => void parts.push(chunk),
        onResponseEnd: done,
        onResponseError: (_, error) => {
          throw error
        }
      }
    )
  }

const read = (answer: StreamedAnswer, done: () => void): void => {
  answer.start({
    chunk: () => undefined,
    end: ({ failure }) => {
      if (failure !== undefined) throw failure
      done()
    }
  })
}

const routedCall =
  (sent: JsonObject): Call =>
  (done) => {
    const call = {
      operation: "chat",
      model: "m",
      body: sent,
      stream: sent["stream"] === true,
      wantsUsage: false,
      requestId: "bench"
    } as const
    const fiber = runFork(
      Effect.map(router.route(call), (answer) => {
        if (answer._tag === "Buffered") done()
        else read(answer, done)
      })
    )
    fiber.addObserver((exit) => {
      if (exit._tag === "Failure") throw new Error("a call failed")
    })
  }

/** Microseconds of this process's CPU, and calls per second, over `count` calls. */
const measure = (call: Call, count: number): Promise<{ readonly cpu: number; readonly rate: number }> =>
  new Promise((resolve) => {
    const before = process.cpuUsage()
    const began = performance.now()
    let begun = 0
    let ended = 0
    const next = () => {
      if (begun === count) return
      begun += 1
      call(() => {
        ended += 1
        if (ended < count) return next()
        const { system, user } = process.cpuUsage(before)
        resolve({ cpu: (system + user) / count, rate: (count / (performance.now() - began)) * 1000 })
      })
    }
    for (let index = 0; index < concurrency; index += 1) next()
  })

const median = (values: ReadonlyArray<number>): number =>
  [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0

for (const [name, sent, count] of [
  ["buffered", body, calls],
  ["stream of 100 chunks", streamBody, streams]
] as const) {
  const raw: Array<number> = []
  const routed: Array<number> = []
  const rates: Array<number> = []
  await measure(rawCall(sent), count / 2)
  await measure(routedCall(sent), count / 2)
  for (let round = 0; round < rounds; round += 1) {
    raw.push((await measure(rawCall(sent), count)).cpu)
    const result = await measure(routedCall(sent), count)
    routed.push(result.cpu)
    rates.push(result.rate)
  }
  const figures = [median(raw), median(routed), median(routed) - median(raw)].map((value) => value.toFixed(1))
  console.log(
    `${name}: raw ${figures[0]} us, router ${figures[1]} us, difference ${figures[2]} us of CPU a call; ` +
      `${Math.round(median(rates))} calls/s`
  )
}
await pool.destroy()
await runtime.dispose()
await stop(upstream)
