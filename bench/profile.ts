/**
 * Where the time goes: runs a gateway under the CPU profiler, loads it, and prints the functions with the most self
 * time, grouped by package. Options: --target=sluice|bare, --model=whole|stream, --seconds=8, --top=40,
 * --keep=<file.cpuprofile> (to open in a browser's developer tools)
 */
import { copyFileSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"
import { Bench } from "./bench.ts"
import { stop } from "./processes.ts"
import { models } from "./requests.ts"

interface ProfileNode {
  readonly id: number
  readonly callFrame: { readonly functionName: string; readonly url: string; readonly lineNumber: number }
}

interface Profile {
  readonly nodes: ReadonlyArray<ProfileNode>
  /** Microseconds of the monotonic clock. */
  readonly startTime: number
  readonly samples: ReadonlyArray<number>
  readonly timeDeltas: ReadonlyArray<number>
}

interface Spent {
  readonly group: string
  readonly name: string
  micros: number
}

const root = fileURLToPath(new URL("..", import.meta.url))

/** The package, the part of Node or the folder of the checkout that a script belongs to. */
const groupOf = (url: string, name: string): string => {
  if (url === "") return name.startsWith("(") ? name : "native"
  if (url.startsWith("node:")) return url.split("/", 1)[0] === "node:internal" ? "node:internal" : url
  const inPackage = /node_modules\/((?:@[^/]+\/)?[^/]+)\/(?!.*node_modules\/)/.exec(url)?.[1]
  if (inPackage !== undefined) return inPackage
  const path = placeOf(url)
  return path.split("/").slice(0, -1).join("/") || path
}

const placeOf = (url: string): string => (url.startsWith("file://") ? fileURLToPath(url).replace(root, "") : url)

/** Self time of each function between two moments of the monotonic clock, largest first. */
const selfTimes = (profile: Profile, from: number, to: number): ReadonlyArray<Spent> => {
  const nodes = new Map(profile.nodes.map((node) => [node.id, node]))
  const spent = new Map<string, Spent>()
  let now = profile.startTime
  for (const [index, id] of profile.samples.entries()) {
    const delta = profile.timeDeltas[index] ?? 0
    now += delta
    const frame = nodes.get(id)?.callFrame
    if (frame === undefined || now < from || now > to) continue
    const name = frame.functionName || "(anonymous)"
    const place =
      frame.url === "" ? "" : ` ${placeOf(frame.url).split("/").slice(-2).join("/")}:${frame.lineNumber + 1}`
    const key = `${name} ${frame.url} ${frame.lineNumber}`
    const entry = spent.get(key) ?? { group: groupOf(frame.url, name), name: `${name}${place}`, micros: 0 }
    entry.micros += delta
    spent.set(key, entry)
  }
  return [...spent.values()].sort((left, right) => right.micros - left.micros)
}

const table = (spent: ReadonlyArray<Spent>, calls: number, top: number): string => {
  const busy = spent.filter((entry) => entry.name !== "(idle)")
  const total = busy.reduce((sum, entry) => sum + entry.micros, 0)
  const line = (micros: number, title: string) => {
    const percent = ((100 * micros) / total).toFixed(1).padStart(5)
    return `${percent} %  ${(micros / calls).toFixed(2).padStart(7)} µs a call  ${title}`
  }
  const groups = new Map<string, number>()
  for (const entry of busy) groups.set(entry.group, (groups.get(entry.group) ?? 0) + entry.micros)
  return [
    "By package:",
    ...[...groups]
      .sort((left, right) => right[1] - left[1])
      .slice(0, 25)
      .map(([group, micros]) => line(micros, group)),
    "",
    "By function (self time):",
    ...busy.slice(0, top).map((entry) => line(entry.micros, `${entry.name}  [${entry.group}]`))
  ].join("\n")
}

const { values } = parseArgs({
  options: {
    target: { type: "string", default: "sluice" },
    model: { type: "string", default: "whole" },
    seconds: { type: "string", default: "8" },
    top: { type: "string", default: "40" },
    keep: { type: "string" }
  }
})

const monotonic = () => Number(process.hrtime.bigint() / 1_000n)
const seconds = Math.min(60, Number(values.seconds))
const model = values.model === "stream" ? models.stream : models.whole
const profiles = mkdtempSync(join(tmpdir(), "sluice-profile-"))
const bench = await Bench.start()
try {
  const flags = ["--cpu-prof", "--cpu-prof-interval=250", `--cpu-prof-dir=${profiles}`]
  const target = await bench.open(values.target === "bare" ? "bare" : "sluice", flags)
  await bench.run(target, model, { connections: 64, seconds: 2 })
  const from = monotonic()
  const outcome = await bench.run(target, model, { connections: 64, seconds })
  const to = monotonic()
  if (target.child !== undefined) await stop(target.child, 40_000)
  // the first, short start of a target that is started twice leaves a profile too, and so may worker threads
  const found = readdirSync(profiles)
    .filter((file) => file.endsWith(".cpuprofile"))
    .map((file) => ({ file, profile: JSON.parse(readFileSync(join(profiles, file), "utf8")) as Profile }))
    .map((entry) => ({ ...entry, spent: selfTimes(entry.profile, from, to) }))
    .sort((left, right) => right.spent.length - left.spent.length)[0]
  if (found === undefined) throw new Error("The gateway left no profile: it must end by itself on SIGTERM.")
  console.log(
    `${values.target}, ${model}: ${Math.round(outcome.perSecond)} calls/s under the profiler, ${outcome.errors} errors, ` +
      `${outcome.targetLoad.toFixed(2)} cores busy\n\n${table(found.spent, outcome.calls, Number(values.top))}`
  )
  if (values.keep !== undefined) copyFileSync(join(profiles, found.file), values.keep)
} catch (error) {
  console.error(error instanceof Error ? error.message : error)
  process.exitCode = 1
} finally {
  await bench.stop()
  rmSync(profiles, { recursive: true, force: true })
}
process.exit()
