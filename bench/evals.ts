/**
 * Workers drain the items of one eval job over HTTP while a third of them die with items in their hands. Fails, with exit
 * code 1, when an item is in two leases at once, or one is lost. Options: --items=100000 --workers=100 --batch=50
 * --lease=20 (seconds) --processes=1
 */
import { parseArgs } from "node:util"
import { Pool } from "undici"
import { masterKey, startGateway } from "#test/support/Gateway.ts"

const { values } = parseArgs({
  options: {
    items: { type: "string", default: "100000" },
    workers: { type: "string", default: "100" },
    batch: { type: "string", default: "50" },
    lease: { type: "string", default: "20" },
    processes: { type: "string", default: "1" }
  }
})
const [items, workers, batch, leaseSeconds] = [values.items, values.workers, values.batch, values.lease].map(
  Number
) as [number, number, number, number]

interface WorkItem {
  readonly test_case_id: string
  readonly lease_expires_at: string
}

const gateway = await startGateway({
  env: { GATEWAY_EVAL_LEASE_TIMEOUT: `${leaseSeconds} seconds`, GATEWAY_PROCESSES: values.processes }
})
const pool = new Pool(gateway.url, { connections: workers })

const call = async <A>(path: string, token: string, body: unknown): Promise<A> => {
  const response = await pool.request({
    method: "POST",
    path,
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: JSON.stringify(body)
  })
  const text = await response.body.text()
  if (response.statusCode >= 300) throw new Error(`${path} answered ${response.statusCode}: ${text.slice(0, 500)}`)
  return JSON.parse(text) as A
}

const problems: Array<string> = []
try {
  const { key } = await gateway.key()
  const made = performance.now()
  const dataset = await call<{ asset_id: string }>("/management/dataset/new", masterKey, {
    content: { name: "bench", storage_format: "jsonl", table_ref: {} }
  })
  for (let from = 0; from < items; from += 10_000) {
    const count = Math.min(10_000, items - from)
    await call(`/management/dataset/${dataset.asset_id}/items`, masterKey, {
      items: Array.from({ length: count }, (_, n) => ({ id: `item-${from + n}`, input: `What is ${from + n} + 1?` }))
    })
  }
  const suite = await call<{ asset_id: string }>("/management/eval_suite/new", masterKey, {
    content: { name: "bench", eval_type: "exact", test_cases: [] }
  })
  const appended = performance.now()
  const job = await call<{ eval_job_id: string }>("/management/eval_job/new", masterKey, {
    eval_suite_id: suite.asset_id,
    dataset_snapshot_ids: [dataset.asset_id],
    reproducibility_seed: 1
  })
  const created = performance.now()

  const leases = new Map<string, number>()
  let [pulls, scores, resurfaced, decided] = [0, 0, 0, 0]
  const pullTimes: Array<number> = []
  const scoreTimes: Array<number> = []
  const timed = async <A>(times: Array<number>, run: Promise<A>): Promise<A> => {
    const began = performance.now()
    const result = await run
    times.push(performance.now() - began)
    return result
  }

  const pull = async (worker: number): Promise<ReadonlyArray<WorkItem>> => {
    const body = { worker_id: `worker-${worker}`, batch_size: batch }
    const answer = await timed(
      pullTimes,
      call<{ items: ReadonlyArray<WorkItem> }>(`/v1/eval_job/${job.eval_job_id}/pull`, key, body)
    )
    pulls += 1
    for (const { lease_expires_at, test_case_id } of answer.items) {
      const expires = Date.parse(lease_expires_at)
      const former = leases.get(test_case_id)
      if (former !== undefined) {
        resurfaced += 1
        if (expires - leaseSeconds * 1000 < former) problems.push(`${test_case_id} was leased twice at once`)
      }
      leases.set(test_case_id, expires)
    }
    return answer.items
  }

  /** One of three dies with a batch in its hands, sooner or later in the first half of its share. */
  const lifetimeOf = (worker: number): number =>
    worker % 3 === 0 ? Math.floor((Math.random() * items) / workers / 2) : Number.POSITIVE_INFINITY

  const work = async (worker: number): Promise<void> => {
    let left = lifetimeOf(worker)
    while (decided === 0) {
      const leased = await pull(worker)
      if (leased.length === 0) await new Promise((resolve) => setTimeout(resolve, 100))
      for (const { test_case_id } of leased) {
        if (left-- <= 0) return
        const body = { eval_job_id: job.eval_job_id, test_case_id, score: 1, scored_by: "bench" }
        const answer = await timed(scoreTimes, call<{ completed: boolean }>("/v1/scores", key, body))
        scores += 1
        if (answer.completed) decided ||= performance.now()
      }
    }
  }
  const began = performance.now()
  const all = Promise.all(Array.from({ length: workers }, (_, worker) => work(worker)))
  const progress = setInterval(() => process.stderr.write(`${scores} scored, ${pulls} pulls\n`), 5000)
  await all
  clearInterval(progress)

  const reply = await gateway.admin("GET", `/management/eval_job/${job.eval_job_id}`)
  const found = reply.json as Record<string, unknown>
  if (found["status"] !== "completed" || found["scored_count"] !== items) problems.push(`lost items: ${reply.text}`)
  if (leases.size !== items) problems.push(`${items - leases.size} items were never leased`)

  const percentile = (times: Array<number>, p: number) =>
    times.toSorted((a, b) => a - b)[Math.floor((times.length - 1) * p)]?.toFixed(1)
  const seconds = (decided - began) / 1000
  console.log(
    `items ${items}, workers ${workers} (${Math.ceil(workers / 3)} die), batch ${batch}, lease ${leaseSeconds} s`
  )
  console.log(
    `dataset written in ${((appended - made) / 1000).toFixed(1)} s, job made in ${((created - appended) / 1000).toFixed(1)} s`
  )
  console.log(
    `drained in ${seconds.toFixed(1)} s: ${Math.round(items / seconds)} items/s, ${pulls} pulls, ${resurfaced} items leased again`
  )
  console.log(`pull p50 ${percentile(pullTimes, 0.5)} ms, p99 ${percentile(pullTimes, 0.99)} ms`)
  console.log(`score p50 ${percentile(scoreTimes, 0.5)} ms, p99 ${percentile(scoreTimes, 0.99)} ms`)
} finally {
  await pool.close()
  await gateway.stop()
}
for (const problem of problems.slice(0, 20)) console.error(problem)
console.log(problems.length === 0 ? "no item twice within its lease, none lost" : `${problems.length} problems`)
process.exit(problems.length === 0 ? 0 : 1)
