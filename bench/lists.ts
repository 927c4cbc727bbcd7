/**
 * Lists and usage with 1,000,000 keys and 10,000,000 calls: the median of every route over HTTP, and its plans.
 * `node bench/lists.ts [keys] [calls]`; the plans go to bench/results/lists-plans.txt. Takes some minutes and 10 GB in the
 * temporary directory.
 */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as pause } from "node:timers/promises"
import { Effect, Redacted } from "effect"
import { Reactivity } from "effect/reactivity"
import { SqlClient } from "effect/sql"
import { migrate } from "#layers/storage/Migrator.ts"
import * as DatabasePostgres from "#layers/storage/DatabasePostgres.ts"
import * as EmbeddedPostgres from "#layers/storage/EmbeddedPostgres.ts"
import { ensurePartitions } from "#layers/usage/Partitions.ts"
import { administratorToken } from "#test/support/administrators.ts"
import { type Gateway, masterKey, startGateway } from "#test/support/Gateway.ts"
import { hotSession, hotToken, hotUser, makeRows, tenant, tenantOrganization } from "./lists-data.ts"

const sizes = { keys: Number(process.argv[2] ?? 1_000_000), calls: Number(process.argv[3] ?? 10_000_000) }
const rounds = 15
const slow = 50

const bearer = (token: string) => ({ authorization: `Bearer ${token}` })

type Headers = Record<string, string>

const routes = (
  master: Headers,
  tenantAdmin: Headers,
  orgAdmin: Headers
): ReadonlyArray<readonly [Headers, string]> => {
  const [developer, key] = [{ cookie: `gateway_session=${hotSession}` }, bearer(hotToken)]
  const day = new Date(Date.now() - 20 * 86_400_000).toISOString().slice(0, 10)
  return [
    ...[
      "/key/list",
      "/key/list?page=200&page_size=50",
      "/key/list?page_size=500",
      `/key/list?user_id=${hotUser}`,
      "/key/list?team_id=team-7",
      "/key/list?organization_id=org-7",
      "/key/list?search=alias-777777",
      "/key/list?search=nothing-like-it",
      "/user/list",
      "/user/list?user_role=developer&page=50",
      "/team/list",
      "/team/list?organization_id=org-7",
      "/organization/list",
      "/customer/list",
      "/budget/list",
      "/model/list",
      "/credential/list",
      "/credential/provider-presets",
      "/guardrail/list",
      "/guardrail/logs",
      "/guardrail/logs?guardrail_id=guardrail-7",
      "/guardrail/logs/stats",
      "/callback/list",
      "/config/list",
      "/tag/list",
      "/management/v1/groups/",
      "/management/v1/catalog/tags",
      "/management/v1/tenants",
      "/management/v1/orgs/usage?window=7d",
      "/management/v1/orgs/usage?window=90d",
      "/management/v1/billing-export/usage?limit=1000",
      "/v1/models",
      "/v1/usage",
      "/v1/usage/summary"
    ].map((path) => [master, path] as const),
    ...[
      "/key/list",
      "/key/list?search=alias-777779",
      "/user/list",
      "/team/list",
      "/organization/list",
      "/customer/list",
      "/budget/list",
      "/guardrail/logs",
      "/guardrail/logs/stats"
    ].map((path) => [tenantAdmin, path] as const),
    ...["/key/list", "/user/list", "/team/list", "/customer/list", "/guardrail/logs", "/guardrail/logs/stats"].map(
      (path) => [orgAdmin, path] as const
    ),
    ...["/v1/usage", "/v1/usage/summary"].map((path) => [key, path] as const),
    ...[
      "/developer/v1/keys",
      "/developer/v1/models/available",
      "/developer/v1/audit",
      "/developer/v1/audit?page=3",
      "/developer/v1/spend",
      `/developer/v1/spend?start_date=${day}&end_date=${day}`,
      "/developer/v1/usage",
      "/developer/v1/spend/logs",
      "/developer/v1/spend/logs?page=20"
    ].map((path) => [developer, path] as const)
  ]
}

/** The plans that PostgreSQL wrote to its log since `offset`, with their statements. */
const plansSince = (log: string, offset: number): string =>
  readFileSync(log)
    .subarray(offset)
    .toString("utf8")
    .split("\n")
    .filter((line) => !/ (LOG|WARNING): {2}(?!duration)/.test(line))
    .join("\n")

/** The tables of which a plan reads more than 1,000 rows in their order on disk. */
const sequentialScans = (plans: string): ReadonlyArray<string> => {
  const read = new Map<string, number>()
  let table = ""
  for (const line of plans.split("\n")) {
    if (line.includes("->") || line.includes("Query Text")) table = ""
    const scan = /Seq Scan on (\S+).*actual time=\S+ rows=(\d+)/.exec(line)
    if (scan !== null) table = scan[1] ?? ""
    const rows = scan?.[2] ?? /Rows Removed by Filter: (\d+)/.exec(line)?.[1]
    if (table !== "" && rows !== undefined) read.set(table, (read.get(table) ?? 0) + Number(rows))
  }
  return [...read].flatMap(([name, rows]) => (rows > 1_000 ? [`${name} (${rows} rows)`] : []))
}

const ask = async (gateway: Gateway, headers: Headers, path: string): Promise<number> => {
  const began = performance.now()
  const reply = await gateway.request("GET", path, { headers })
  const took = performance.now() - began
  if (reply.status !== 200) throw new Error(`${path} answered ${reply.status}: ${reply.text.slice(0, 200)}`)
  return took
}

const medianOf = (times: ReadonlyArray<number>): number => times.toSorted((a, b) => a - b)[times.length >> 1] ?? 0

const walk = async (gateway: Gateway, sql: SqlClient.SqlClient, log: string): Promise<void> => {
  const master = bearer(masterKey)
  const tenantAdmin = bearer(await administratorToken({ role: "tenant_admin", tenant }))
  const orgAdmin = bearer(await administratorToken({ role: "org_admin", tenant, organization_id: tenantOrganization }))
  const names = new Map<Headers, string>([
    [master, "master"],
    [tenantAdmin, "tenant"],
    [orgAdmin, "org"]
  ])
  const explaining = async (on: boolean) => {
    await Effect.runPromise(sql.unsafe(`ALTER SYSTEM SET auto_explain.log_min_duration = ${on ? 0 : -1}`).unprepared)
    await Effect.runPromise(sql.unsafe("SELECT pg_reload_conf()").unprepared)
    await pause(300)
  }
  const measured: Array<{
    readonly headers: Headers
    readonly path: string
    readonly median: number
    readonly worst: number
  }> = []
  for (const [headers, path] of routes(master, tenantAdmin, orgAdmin)) {
    const times: Array<number> = []
    const deadline = performance.now() + 10_000
    await ask(gateway, headers, path)
    while (times.length < rounds && (performance.now() < deadline || times.length < 3)) {
      times.push(await ask(gateway, headers, path))
    }
    measured.push({ headers, path, median: medianOf(times), worst: Math.max(...times) })
  }
  await explaining(true)
  const document: Array<string> = []
  for (const { headers, median, path, worst } of measured) {
    const offset = statSync(log).size
    await ask(gateway, headers, path)
    await pause(30)
    const plans = plansSince(log, offset)
    const who = names.get(headers) ?? (path.startsWith("/developer") ? "developer" : "key")
    document.push(`## ${who} GET ${path}: median ${median.toFixed(1)} ms\n\n${plans}\n`)
    const scans = sequentialScans(plans)
    console.log(
      `${median > slow ? "SLOW" : "    "} ${who.padEnd(9)} ${path.padEnd(58)} median ${median.toFixed(1).padStart(8)} ms   worst ${worst
        .toFixed(1)
        .padStart(8)} ms${scans.length === 0 ? "" : `   seq scan: ${scans.join(", ")}`}`
    )
  }
  await explaining(false)
  const results = new URL("results/", import.meta.url)
  mkdirSync(results, { recursive: true })
  writeFileSync(new URL("lists-plans.txt", results), document.join("\n"))
  const over = measured.filter(({ median }) => median > slow).length
  console.log(
    `\n${measured.length} routes, ${over} over ${slow} ms at the median; the plans are in bench/results/lists-plans.txt`
  )
}

const program = Effect.gen(function* () {
  const directory = yield* Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "sluice-bench-lists-"))),
    (made) => Effect.sync(() => rmSync(made, { recursive: true, force: true }))
  )
  const server = yield* EmbeddedPostgres.make({
    dataDir: directory,
    durable: false,
    settings: {
      max_wal_size: "4GB",
      maintenance_work_mem: "512MB",
      session_preload_libraries: "auto_explain",
      "auto_explain.log_analyze": "on",
      "auto_explain.log_buffers": "on",
      "auto_explain.log_nested_statements": "on"
    }
  })
  const sql = yield* DatabasePostgres.make({ url: server.url, poolSize: 2, statementTimeout: "30 minutes" })
  yield* migrate({ schemas: ["public"] }).pipe(Effect.provideService(SqlClient.SqlClient, sql))
  yield* ensurePartitions("public").pipe(Effect.provideService(SqlClient.SqlClient, sql))
  console.log(`making ${sizes.keys} keys and ${sizes.calls} calls`)
  for (const [what, seconds] of yield* makeRows(sql, sizes))
    console.log(`  ${what.padEnd(22)} ${seconds.toFixed(1).padStart(6)} s`)
  const gateway = yield* Effect.acquireRelease(
    Effect.promise(() => startGateway({ databaseUrl: Redacted.value(server.url) })),
    (running) => Effect.promise(() => running.stop())
  )
  yield* Effect.promise(() => walk(gateway, sql, join(directory, "postgres", "postgres.log")))
})

await Effect.runPromise(Effect.scoped(program).pipe(Effect.provide(Reactivity.layer)))
