/**
 * Measures Sluice beside a bare Node proxy and @portkey-ai/gateway against the same stub, in one run. Options:
 * --quick (under 40 s), --json (also writes bench/results/<time>.json), --only=bare,portkey,sluice
 */
import { mkdirSync, writeFileSync } from "node:fs"
import { parseArgs } from "node:util"
import { Bench, type Measured } from "./bench.ts"
import { residentMemory } from "./processes.ts"
import { makeReport, print, type TargetResult } from "./report.ts"
import { models } from "./requests.ts"
import { median, type Spread } from "./stats.ts"
import { titles, type Target, type TargetName } from "./targets.ts"

const { values } = parseArgs({
  options: {
    quick: { type: "boolean", default: false },
    json: { type: "boolean", default: false },
    only: { type: "string", default: "bare,portkey,sluice" }
  }
})

/** Seconds of a phase, and how often it is repeated. */
const plan = values.quick
  ? { warm: 0.7, saturate: [1.2, 2], half: [1.2, 1], first: [1, 1], streams: [1, 1] }
  : { warm: 2, saturate: [4, 3], half: [2.5, 3], first: [2, 2], streams: [2, 3] }

const connections = 64
const openConnections = 256
const streamRate = 100

const say = (text: string) => process.stderr.write(`${text}\n`)

/** Median, over the rounds, of each figure of a spread. */
const middle = (spreads: ReadonlyArray<Spread>): Spread => ({
  p50: median(spreads.map((spread) => spread.p50)),
  p99: median(spreads.map((spread) => spread.p99)),
  max: median(spreads.map((spread) => spread.max))
})

/** Repeats a measurement round by round over all targets, so that a slow minute of the machine hits all alike. */
const interleaved = async <A>(
  targets: ReadonlyArray<Target>,
  rounds: number,
  measure: (target: Target) => Promise<A>
): Promise<ReadonlyMap<TargetName, ReadonlyArray<A>>> => {
  const found = new Map<TargetName, Array<A>>(targets.map((target) => [target.name, []]))
  for (let round = 0; round < rounds; round += 1) {
    for (const target of targets) found.get(target.name)?.push(await measure(target))
  }
  return found
}

const openAll = async (bench: Bench, notes: Array<string>): Promise<ReadonlyArray<Target>> => {
  const targets: Array<Target> = []
  for (const name of ["direct", "bare", "portkey", "sluice"] as const) {
    if (name !== "direct" && !values.only.split(",").includes(name)) continue
    try {
      const target = await bench.open(name)
      targets.push(target)
      notes.push(...target.notes)
    } catch (error) {
      notes.push(`${titles[name]} was skipped. ${error instanceof Error ? error.message : String(error)}`)
    }
  }
  return targets
}

/** Warms a target up, and leaves out one that cannot answer. */
const works = async (bench: Bench, target: Target, notes: Array<string>): Promise<boolean> => {
  for (const model of [models.whole, models.stream]) {
    const warm = await bench.run(target, model, { connections, seconds: plan.warm / 2 })
    if (warm.calls > 0 && warm.errors <= warm.calls / 100) continue
    notes.push(`${titles[target.name]} was skipped: ${warm.errors} of its first calls of ${model} failed.`)
    return false
  }
  return true
}

const measure = async (bench: Bench, targets: ReadonlyArray<Target>): Promise<ReadonlyArray<TargetResult>> => {
  const of = <A>(found: ReadonlyMap<TargetName, ReadonlyArray<A>>, target: Target) => found.get(target.name) ?? []
  const [saturateSeconds = 1, saturateRounds = 1] = plan.saturate
  const [halfSeconds = 1, halfRounds = 1] = plan.half
  const [firstSeconds = 1, firstRounds = 1] = plan.first
  const [streamSeconds = 1, streamRounds = 1] = plan.streams

  say("Saturation")
  const saturated = await interleaved(targets, saturateRounds, (target) =>
    bench.run(target, models.whole, { connections, seconds: saturateSeconds })
  )
  const rateOf = (target: Target) => median(of(saturated, target).map((round) => round.perSecond))

  say("Latency at half load")
  const direct = targets.find((target) => target.name === "direct")
  const gateways = targets.filter((target) => target !== direct)
  const halves = await interleaved(gateways, halfRounds, async (target): Promise<readonly [Measured, Measured]> => {
    const job = { connections: openConnections, seconds: halfSeconds, rate: rateOf(target) / 2 }
    const baseline = await bench.run(direct ?? target, models.whole, job)
    return [await bench.run(target, models.whole, job), baseline]
  })

  say("Streams")
  const firsts = await interleaved(targets, firstRounds, (target) =>
    bench.run(target, models.paced, { connections: openConnections, seconds: firstSeconds, rate: streamRate })
  )
  const streams = await interleaved(targets, streamRounds, (target) =>
    bench.run(target, models.stream, { connections, seconds: streamSeconds })
  )

  return targets.map((target) => {
    const rounds = of(saturated, target)
    const half = of(halves, target)
    const all = [...rounds, ...half.map(([through]) => through), ...of(firsts, target), ...of(streams, target)]
    return {
      name: target.name,
      perSecond: rateOf(target),
      rounds: rounds.map((round) => round.perSecond),
      microsPerCall: median(rounds.map((round) => (1e6 * round.targetLoad) / round.perSecond)),
      targetLoad: median(rounds.map((round) => round.targetLoad)),
      ownLoad: median(rounds.map((round) => round.ownLoad)),
      otherLoad: median(rounds.map((round) => round.otherLoad)),
      errors: all.reduce((sum, round) => sum + round.errors, 0),
      halfRate: rateOf(target) / 2,
      latency: middle(half.map(([through]) => through.latency)),
      directLatency: middle(half.map(([, baseline]) => baseline.latency)),
      firstByte: middle(of(firsts, target).map((round) => round.firstByte)),
      streamsPerSecond: median(of(streams, target).map((round) => round.perSecond)),
      memory: target.child === undefined ? undefined : residentMemory(target.child.pid),
      startup: target.startup
    }
  })
}

const notes: Array<string> = []
say("Starting")
const bench = await Bench.start()
const opened = await openAll(bench, notes)
const targets: Array<Target> = []
for (const target of opened) if (await works(bench, target, notes)) targets.push(target)
const results = await measure(bench, targets)
await bench.stop()
for (const result of results)
  if (result.errors > 0) notes.push(`${titles[result.name]}: ${result.errors} calls failed.`)

const report = makeReport(values.quick ? "quick" : "full", results, notes)
console.log(print(report))
if (values.json) {
  const dir = new URL("results/", import.meta.url)
  mkdirSync(dir, { recursive: true })
  const file = new URL(`${report.at.replaceAll(":", "-")}.json`, dir)
  writeFileSync(file, `${JSON.stringify(report, null, 2)}\n`)
  say(`Written to ${file.pathname}`)
}
process.exit(0)
