/**
 * What tracing costs: processor time a call of gateways that differ in nothing but `OTEL_*`, loaded in turns, and what a
 * collector was sent. Options: --rounds=5 --seconds=3 --model=whole|stream --modes=off,unsampled,tenth,all
 */
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { parseArgs } from "node:util"
import { Bench } from "./bench.ts"
import { models } from "./requests.ts"
import type { Target } from "./targets.ts"

const { values } = parseArgs({
  options: {
    rounds: { type: "string", default: "5" },
    seconds: { type: "string", default: "3" },
    model: { type: "string", default: "whole" },
    modes: { type: "string", default: "off,unsampled,tenth,all" }
  }
})
const rounds = Math.min(50, Number(values.rounds))
const seconds = Math.min(60, Number(values.seconds))
const model = values.model === "stream" ? models.stream : models.whole

const sent = { requests: 0, bytes: 0 }
const collector = createServer((request, response) => {
  sent.requests += 1
  request.on("data", (chunk: Buffer) => void (sent.bytes += chunk.length))
  request.on("end", () => response.writeHead(200).end())
})
await new Promise<void>((resolve) => collector.listen(0, "127.0.0.1", resolve))

const tracing = {
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: `http://127.0.0.1:${(collector.address() as AddressInfo).port}/v1/traces`
}
const settings: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  off: {},
  unsampled: { ...tracing, OTEL_TRACES_SAMPLER: "always_off" },
  tenth: { ...tracing, OTEL_TRACES_SAMPLER: "traceidratio", OTEL_TRACES_SAMPLER_ARG: "0.1" },
  all: { ...tracing, OTEL_TRACES_SAMPLER: "always_on" }
}

interface Measurement {
  readonly mode: string
  readonly target: Target
  readonly micros: Array<number>
  readonly rates: Array<number>
  calls: number
  bytes: number
}

const median = (numbers: ReadonlyArray<number>): number =>
  numbers.toSorted((left, right) => left - right)[Math.floor(numbers.length / 2)] ?? 0

const bench = await Bench.start()
try {
  const measured: Array<Measurement> = []
  for (const mode of values.modes.split(",")) {
    // Gateways are started with the environment of this process.
    for (const name of Object.keys(process.env)) if (name.startsWith("OTEL_")) delete process.env[name]
    Object.assign(process.env, settings[mode])
    const target = await bench.open("sluice")
    await bench.run(target, model, { connections: 64, seconds: 3 })
    measured.push({ mode, target, micros: [], rates: [], calls: 0, bytes: 0 })
  }
  for (let round = 0; round < rounds; round++) {
    for (const one of measured) {
      const before = sent.bytes
      const {
        calls,
        errors,
        perSecond,
        seconds: took,
        targetLoad
      } = await bench.run(one.target, model, {
        connections: 64,
        seconds
      })
      if (errors > 0) throw new Error(`${errors} calls failed`)
      // What was traced is sent for a second more.
      await new Promise((resolve) => setTimeout(resolve, 1_500))
      one.micros.push((targetLoad * took * 1e6) / calls)
      one.rates.push(perSecond)
      one.calls += calls
      one.bytes += sent.bytes - before
    }
  }
  // The least disturbed quarter: whatever else runs here only ever adds.
  const quiet = (one: Measurement) => one.micros.toSorted((left, right) => left - right)[Math.floor(rounds / 4)] ?? 0
  const off = quiet(measured[0]!)
  for (const one of measured) {
    const [micros, own] = [one.micros.map((each) => each.toFixed(0)).join(" "), quiet(one)]
    console.log(
      `${one.mode.padEnd(10)} ${own.toFixed(0).padStart(5)} us a call (${micros})  ${own >= off ? "+" : ""}${(own - off).toFixed(0)} us  ` +
        `${median(one.rates).toFixed(0)} calls/s  ${(one.bytes / one.calls).toFixed(0)} bytes a call to the collector`
    )
  }
} catch (error) {
  console.error(error instanceof Error ? error.message : error)
  process.exitCode = 1
} finally {
  await bench.stop()
  collector.close()
  collector.closeAllConnections()
}
process.exit()
