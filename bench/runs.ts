/**
 * Viewers of pipeline runs over HTTP: the delay from a run's change in the database to each of its viewers. First all
 * viewers watch one run, then they are spread over many, whose reviews are decided at odd moments. Then the rate at which
 * the embedded engine takes small runs to their ends. Fails, with exit code 1, when the 99th percentile of the delay passes
 * 2.3 s or an event is missing. Options: --viewers=1000 --runs=50 --small=500
 */
import { request } from "node:http"
import { Agent } from "node:http"
import { parseArgs } from "node:util"
import { masterKey, startGateway } from "#test/support/Gateway.ts"
import { residentMemory } from "./processes.ts"

const { values } = parseArgs({
  options: {
    viewers: { type: "string", default: "1000" },
    runs: { type: "string", default: "50" },
    small: { type: "string", default: "500" }
  }
})
const viewers = Math.min(5000, Number(values.viewers))
const many = Math.min(500, Number(values.runs))
const small = Math.min(5000, Number(values.small))
const limit = 2300

const root = "/management/pipelines"
const gateway = await startGateway()
const wait = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

const post = async (path: string, body: unknown): Promise<Record<string, string>> => {
  const reply = await gateway.admin("POST", root + path, body)
  if (reply.status >= 300) throw new Error(`${path} answered ${reply.status}: ${reply.text}`)
  return (reply.json ?? {}) as Record<string, string>
}

const statusOf = async (id: string): Promise<string> =>
  ((await gateway.admin("GET", `${root}/runs/${id}`)).json as { readonly status: string }).status

const until = async (id: string, wanted: string): Promise<void> => {
  for (let tries = 0; (await statusOf(id)) !== wanted; tries++) {
    if (tries > 600) throw new Error(`run ${id} did not become ${wanted}`)
    await wait(50)
  }
}

/** One viewer: resolves with the delay of each event that tells of a change after the first, in milliseconds. */
const watch = (
  agent: Agent,
  id: string
): { readonly ready: Promise<void>; readonly delays: Promise<Array<number>> } => {
  let open: () => void = () => undefined
  const ready = new Promise<void>((resolve) => (open = resolve))
  const delays = new Promise<Array<number>>((resolve, reject) => {
    const found: Array<number> = []
    let seen = 0
    let text = ""
    const call = request(
      `${gateway.url}${root}/runs/${id}/stream`,
      { agent, headers: { authorization: `Bearer ${masterKey}` } },
      (response) => {
        response.setEncoding("utf8")
        response.on("data", (piece: string) => {
          const now = Date.now()
          text += piece
          for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
            const [event = "", data = ""] = text.slice(0, end).split("\n")
            text = text.slice(end + 2)
            if (event === "event: heartbeat") continue
            if (seen++ === 0) open()
            else found.push(now - Date.parse((JSON.parse(data.slice(6)) as { readonly at: string }).at))
          }
        })
        response.on("end", () => resolve(found))
        response.on("error", reject)
      }
    )
    call.on("error", reject)
    call.end()
  })
  return { ready, delays }
}

const percentile = (sorted: ReadonlyArray<number>, share: number): number =>
  sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN

const failures: Array<string> = []

const scenario = async (definition: string, runs: number): Promise<void> => {
  const ids: Array<string> = []
  for (let n = 0; n < runs; n++) ids.push((await post("/runs", { definition_id: definition }))["run_id"]!)
  for (const id of ids) await until(id, "awaiting_review")
  const agent = new Agent({ maxSockets: viewers })
  const watching = Array.from({ length: viewers }, (_, n) => watch(agent, ids[n % runs]!))
  await Promise.all(watching.map(({ ready }) => ready))
  const memory = residentMemory(gateway.child.pid ?? 0)
  for (const id of ids) {
    await wait(runs === 1 ? 700 : 20 + Math.random() * 180)
    await post(`/runs/${id}/signal`, { signal_name: "human_review_decision", payload: { approved: true } })
  }
  const delays = (await Promise.all(watching.map((one) => one.delays))).flat().toSorted((a, b) => a - b)
  agent.destroy()
  const [p50, p99, most] = [0.5, 0.99, 1].map((share) => percentile(delays, share)) as [number, number, number]
  console.log(
    `${viewers} viewers of ${runs} run${runs === 1 ? "" : "s"}: ${delays.length} events, delay p50 ${p50} ms, ` +
      `p99 ${p99} ms, most ${most} ms; ${memory?.toFixed(0) ?? "?"} MB`
  )
  if (delays.length < viewers) failures.push(`${viewers - delays.length} viewers were not told of the end.`)
  if (!(p99 <= limit)) failures.push(`The delay's 99th percentile is ${p99} ms; the limit is ${limit} ms.`)
}

const rate = async (definition: string): Promise<void> => {
  const started = performance.now()
  const ids: Array<string> = []
  const lane = async () => {
    while (ids.length < small) {
      ids.push("")
      ids[ids.length - 1] = (await post("/runs", { definition_id: definition }))["run_id"]!
    }
  }
  await Promise.all(Array.from({ length: 8 }, lane))
  const created = performance.now() - started
  for (let left = small; left > 0; await wait(20)) {
    const counts = await Promise.all(
      ["accepted", "running"].map((status) => gateway.admin("GET", `${root}/runs?status=${status}&limit=500`))
    )
    left = counts.reduce((sum, { json }) => sum + (json as { readonly data: ReadonlyArray<unknown> }).data.length, 0)
  }
  const seconds = (performance.now() - started) / 1000
  console.log(
    `${small} runs of one step: created in ${(created / 1000).toFixed(1)} s, all over after ${seconds.toFixed(1)} s ` +
      `(${Math.round(small / seconds)}/s)`
  )
}

try {
  const review = await post("/definitions", {
    dsl_source:
      "name: watched\nsteps: [{id: check, operator: human_review}, {id: z, operator: transform, needs: check, with: 1}]"
  })
  await scenario(review["asset_id"]!, 1)
  await scenario(review["asset_id"]!, many)
  const one = await post("/definitions", { dsl_source: "name: small\nsteps: [{id: a, operator: transform, with: 1}]" })
  await rate(one["asset_id"]!)
} finally {
  await gateway.stop()
}
for (const failure of failures) console.log(`FAILED: ${failure}`)
process.exitCode = failures.length === 0 ? 0 : 1
