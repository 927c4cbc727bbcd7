import { chmodSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { freePort, startArguments } from "#test/support/Gateway.ts"
import { models } from "./requests.ts"
import { answered, gatewayCore, loadCore, moveChildren, start, stop, type Child } from "./processes.ts"

const masterKey = "bench-master-key-0123456789abcdef"

/** A Sluice process with everything on. */
export interface Sluice {
  readonly child: Child
  readonly port: number
  /** Milliseconds from the start of the process until /readyz answered 200. */
  readonly startup: number
}

/** A fresh data directory that an unprivileged PostgreSQL may enter. */
export const makeDataDir = (): string => {
  const parent = mkdtempSync(join(tmpdir(), "sluice-bench-"))
  chmodSync(parent, 0o755)
  const dir = join(parent, "data")
  mkdirSync(dir, { mode: 0o755 })
  return dir
}

/** Removes a data directory, and the database that a killed gateway left running in it. */
export const removeDataDir = (dir: string): void => {
  for (const name of readdirSync(dir, { recursive: true, encoding: "utf8" })) {
    if (!name.endsWith("postmaster.pid")) continue
    const pid = Number.parseInt(readFileSync(join(dir, name), "utf8"), 10)
    try {
      if (pid > 1) process.kill(pid, "SIGQUIT")
    } catch {
      // it had ended
    }
  }
  rmSync(join(dir, ".."), { recursive: true, force: true, maxRetries: 5, retryDelay: 100 })
}

/** Starts Sluice on a data directory; fails with what it printed. */
export const startSluice = async (dataDir: string, nodeFlags: ReadonlyArray<string> = []): Promise<Sluice> => {
  const port = await freePort()
  const opsPort = await freePort()
  const child = start({
    core: gatewayCore,
    args: [...nodeFlags, ...startArguments],
    env: {
      GATEWAY_HOST: "127.0.0.1",
      GATEWAY_PORT: String(port),
      GATEWAY_OPS_PORT: String(opsPort),
      GATEWAY_DATA_DIR: dataDir,
      GATEWAY_MASTER_KEY: masterKey,
      GATEWAY_PROCESSES: "1",
      DATABASE_URL: ""
    }
  })
  const startup = await answered(child, `http://127.0.0.1:${opsPort}/readyz`, (status) => status === 200)
  if (startup !== undefined) {
    // In production the database has processors of its own; here it shares those of stub and load generator.
    moveChildren(child.pid, loadCore)
    return { child, port, startup }
  }
  await stop(child)
  throw new Error(`Sluice did not become ready. It printed:\n${child.printed().trim() || "(nothing)"}`)
}

const manage = async (sluice: Sluice, path: string, body: object): Promise<{ status: number; json: unknown }> => {
  const response = await fetch(`http://127.0.0.1:${sluice.port}${path}`, {
    method: "POST",
    headers: { authorization: `Bearer ${masterKey}`, "content-type": "application/json" },
    body: JSON.stringify(body)
  })
  const text = await response.text()
  try {
    return { status: response.status, json: JSON.parse(text) }
  } catch {
    return { status: response.status, json: text }
  }
}

const created = async (sluice: Sluice, path: string, body: object): Promise<Record<string, unknown>> => {
  const { status, json } = await manage(sluice, path, body)
  if (status === 201 && typeof json === "object" && json !== null) return json as Record<string, unknown>
  throw new Error(`POST ${path} answered ${status}: ${JSON.stringify(json)}`)
}

/**
 * Puts a deny list before every call: four words that no request of the bench holds. False when this gateway has no
 * such operation, so that the report can say the guardrail was missing.
 */
const addGuardrail = async (sluice: Sluice): Promise<boolean> => {
  const words = ["forbidden-word", "another forbidden phrase", "third", "project-codename-x"]
  const { status, json } = await manage(sluice, "/guardrail/new", {
    guardrail_name: "bench deny list",
    guardrail_type: "deny_list",
    mode: "block",
    config: { stage: "pre", words }
  })
  if (status === 201) return true
  if (status === 404) return false
  throw new Error(`POST /guardrail/new answered ${status}: ${JSON.stringify(json)}`)
}

/** What a call on a prepared gateway needs, and whether the guardrail stands. */
export interface Prepared {
  readonly key: string
  readonly guarded: boolean
}

/**
 * Registers the stub as a model with prices, makes the guardrail, and a key whose budget and limits are counted on
 * every call and never reached. Done once a data directory.
 */
export const prepareSluice = async (sluice: Sluice, upstreamUrl: string): Promise<Prepared> => {
  for (const model of Object.values(models)) {
    await created(sluice, "/model/new", {
      model_name: model,
      gateway_params: { model: `openai/${model}`, api_base: upstreamUrl, api_key: "stub", max_retries: 0 },
      model_info: { input_cost_per_token: 0.000_000_15, output_cost_per_token: 0.000_000_6 }
    })
  }
  const guarded = await addGuardrail(sluice)
  const { key } = await created(sluice, "/key/generate", {
    key_alias: "bench",
    max_budget: 1_000_000,
    rpm_limit: 2_000_000_000,
    tpm_limit: 2_000_000_000
  })
  if (typeof key !== "string") throw new Error("POST /key/generate answered no key")
  return { key, guarded }
}
