/**
 * Holds 1,000 streams open while 200,000 calls go through one Sluice process, and watches its memory. Fails when the
 * resident set passes 300 MB, or when its median in the last quarter of the calls is more than 10 % above that of the
 * first, or when calls or streams fail, or when upstream calls stay open after their clients have gone.
 * Options: --calls=200000 --streams=1000 --limit=300 (MB) --target=sluice|bare|portkey
 */
import { parseArgs } from "node:util"
import { Bench } from "./bench.ts"
import { residentMemory } from "./processes.ts"
import { models } from "./requests.ts"
import { median } from "./stats.ts"
import type { TargetName } from "./targets.ts"

const { values } = parseArgs({
  options: {
    calls: { type: "string", default: "200000" },
    streams: { type: "string", default: "1000" },
    limit: { type: "string", default: "300" },
    target: { type: "string", default: "sluice" }
  }
})

const calls = Math.min(2_000_000, Number(values.calls))
const streams = Math.min(15_000, Number(values.streams))
const limit = Number(values.limit)
const warmCalls = Math.ceil(calls / 20)
const growth = 1.1
const slices = 40
const longest = 480

const wait = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

/** Waits until a condition holds; false after `seconds`. */
const eventually = async (seconds: number, condition: () => Promise<boolean>): Promise<boolean> => {
  for (const end = performance.now() + seconds * 1_000; performance.now() < end; await wait(100)) {
    if (await condition()) return true
  }
  return false
}

const soak = async (bench: Bench): Promise<ReadonlyArray<string>> => {
  const failures: Array<string> = []
  const target = await bench.open(values.target as TargetName)
  const pid = target.child?.pid ?? 0
  for (const note of target.notes) console.log(`! ${note}`)
  await bench.run(target, models.whole, { connections: 64, seconds: 60, calls: warmCalls })

  await bench.hold(target, models.held, streams)
  const all = await eventually(30, async () => (await bench.held()).standing === streams)
  if (!all) failures.push(`Only ${(await bench.held()).standing} of ${streams} streams stand.`)
  console.log(`${streams} streams open, ${residentMemory(pid)?.toFixed(0) ?? "?"} MB`)

  let highest = 0
  const samples: Array<Array<number>> = [[], [], [], []]
  let quarter = 0
  const sample = () => {
    const memory = residentMemory(pid) ?? 0
    highest = Math.max(highest, memory)
    samples[quarter]?.push(memory)
  }
  const timer = setInterval(sample, 200)
  const began = performance.now()
  let done = 0
  let errors = 0
  for (let slice = 0; slice < slices && performance.now() - began < longest * 1_000; slice += 1) {
    quarter = Math.floor((4 * slice) / slices)
    const share = Math.ceil(calls / slices)
    const outcome = await bench.run(target, models.whole, { connections: 64, seconds: longest / 4, calls: share })
    done += outcome.calls
    errors += outcome.errors
    sample()
    if (slice % 10 === 9) console.log(`${done} calls, ${residentMemory(pid)?.toFixed(0) ?? "?"} MB`)
  }
  clearInterval(timer)
  const seconds = (performance.now() - began) / 1_000
  const held = await bench.held()
  await bench.release()
  const cancelled = await eventually(10, async () => (await bench.upstreamState()).open === 0)

  const quarters = samples.map(median)
  const [first = Number.NaN, , , last = Number.NaN] = quarters
  console.log(`${done} calls in ${seconds.toFixed(1)} s (${Math.round(done / seconds)}/s), ${errors} errors`)
  console.log(`Median resident set of each quarter: ${quarters.map((value) => value.toFixed(0)).join(", ")} MB`)
  console.log(`Highest: ${highest.toFixed(0)} MB; streams still open at the end: ${held.standing} of ${streams}`)
  if (done < calls || errors > 0) failures.push(`${calls - done} of ${calls} calls did not succeed.`)
  if (held.ended > 0) failures.push(`${held.ended} streams ended before their time.`)
  if (!cancelled) failures.push(`${(await bench.upstreamState()).open} upstream calls outlived their clients.`)
  if (!(highest <= limit)) failures.push(`The resident set reached ${highest.toFixed(0)} MB; the limit is ${limit}.`)
  if (!(last <= first * growth)) failures.push(`It grew from ${first.toFixed(0)} to ${last.toFixed(0)} MB.`)
  return failures
}

const bench = await Bench.start()
try {
  const failures = await soak(bench)
  for (const failure of failures) console.log(`FAILED: ${failure}`)
  if (failures.length === 0) console.log("passed")
  process.exitCode = failures.length === 0 ? 0 : 1
} catch (error) {
  console.error(error instanceof Error ? error.message : error)
  process.exitCode = 1
} finally {
  await bench.stop()
}
process.exit()
