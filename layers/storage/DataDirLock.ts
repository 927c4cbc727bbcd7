import { createHash, randomBytes } from "node:crypto"
import * as fs from "node:fs"
import { hostname } from "node:os"
import { execFileSync } from "node:child_process"
import { join } from "node:path"
import { setTimeout as pause } from "node:timers/promises"
import { Deferred, Effect, type Scope } from "effect"
import { DatabaseStartError } from "#services/storage/DatabaseServer.ts"

/** Who holds the lock. `start` tells a process from a later one with the same pid. */
interface Holder {
  readonly pid: number
  readonly start: string
  readonly boot: string
  readonly namespace: string
  readonly nonce: string
}

type Outcome =
  | { readonly _tag: "Held" }
  | { readonly _tag: "Alive"; readonly holder: Holder | undefined }
  | { readonly _tag: "Unknown"; readonly holder: Holder }

/** A holder in another PID namespace or on another machine cannot be looked up: it is dead when its lock grows old. */
export interface LockTiming {
  /** How often a holder touches its lock. */
  readonly heartbeatMs: number
  /** The age at which a lock is abandoned. */
  readonly abandonedMs: number
}

const TIMING: LockTiming = { heartbeatMs: 2_000, abandonedMs: 10_000 }

const readText = (path: string): string | undefined => {
  try {
    return fs.readFileSync(path, "utf8")
  } catch {
    return undefined
  }
}

/** A token that differs for two processes that had the same pid, or undefined when no such process runs. */
export const processStart = (pid: number): string | undefined => {
  if (process.platform === "linux") {
    const stat = readText(`/proc/${pid}/stat`)
    if (stat === undefined) return undefined
    // The command name may hold spaces and brackets; the fields after it start behind the last bracket.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ")
    return fields[0] === "Z" || fields[0] === "X" ? undefined : fields[19]
  }
  if (process.platform === "win32") {
    try {
      process.kill(pid, 0)
      return "running"
    } catch (cause) {
      return (cause as NodeJS.ErrnoException).code === "EPERM" ? "running" : undefined
    }
  }
  try {
    const line = execFileSync("ps", ["-o", "stat=,lstart=", "-p", String(pid)], { encoding: "utf8" }).trim()
    return line === "" || line.startsWith("Z") ? undefined : line.split(/\s+/).slice(1).join(" ")
  } catch {
    return undefined
  }
}

const bootId = (): string => readText("/proc/sys/kernel/random/boot_id")?.trim() ?? ""

const namespaceId = (): string => {
  try {
    return fs.readlinkSync("/proc/self/ns/pid")
  } catch {
    return hostname()
  }
}

const parse = (text: string): Holder | undefined => {
  try {
    const value = JSON.parse(text) as Partial<Holder> | null
    return typeof value?.pid === "number" && typeof value.start === "string" ? (value as Holder) : undefined
  } catch {
    return undefined
  }
}

const ageMs = (path: string): number => {
  try {
    return Date.now() - fs.statSync(path).mtimeMs
  } catch {
    return Number.POSITIVE_INFINITY
  }
}

const judge = (path: string, text: string, self: Holder, abandonedMs: number): Outcome | "Dead" => {
  const holder = parse(text)
  if (holder === undefined) return ageMs(path) < abandonedMs ? { _tag: "Alive", holder } : "Dead"
  if (holder.boot === self.boot && holder.namespace === self.namespace) {
    return processStart(holder.pid) === holder.start ? { _tag: "Alive", holder } : "Dead"
  }
  return ageMs(path) < abandonedMs ? { _tag: "Unknown", holder } : "Dead"
}

/** Creates `path` with `text` only when it does not exist; a reader never sees half of it where hard links work. */
const createExclusive = (path: string, text: string, nonce: string): boolean => {
  const temporary = `${path}.${nonce}.new`
  fs.writeFileSync(temporary, text, { mode: 0o600 })
  try {
    fs.linkSync(temporary, path)
    return true
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code
    if (code === "EEXIST") return false
    if (code !== "EPERM" && code !== "ENOTSUP" && code !== "EOPNOTSUPP" && code !== "ENOSYS") throw cause
    try {
      fs.writeFileSync(path, text, { mode: 0o600, flag: "wx" })
      return true
    } catch (failure) {
      if ((failure as NodeJS.ErrnoException).code === "EEXIST") return false
      throw failure
    }
  } finally {
    fs.rmSync(temporary, { force: true })
  }
}

/**
 * Takes the lock at `path`, also from a dead holder. A dead holder's lock may only be replaced by the one who holds
 * the lock named after that holder's content, so of several processes that find the same stale file one wins.
 */
const take = (path: string, self: Holder, abandonedMs: number): Outcome => {
  const text = JSON.stringify(self)
  for (let attempt = 0; attempt < 20; attempt++) {
    if (createExclusive(path, text, self.nonce)) return { _tag: "Held" }
    const found = readText(path)
    if (found === undefined) continue
    const verdict = judge(path, found, self, abandonedMs)
    if (verdict !== "Dead") return verdict
    const claim = `${path}.${createHash("sha256").update(found).digest("hex").slice(0, 16)}`
    const claimed = take(claim, self, abandonedMs)
    if (claimed._tag !== "Held") return claimed
    try {
      if (readText(path) !== found) continue
      const replacement = `${path}.${self.nonce}.next`
      fs.writeFileSync(replacement, text, { mode: 0o600 })
      fs.renameSync(replacement, path)
      return { _tag: "Held" }
    } finally {
      fs.rmSync(claim, { force: true })
    }
  }
  return { _tag: "Alive", holder: undefined }
}

const oneLine = (cause: unknown): string =>
  (cause instanceof Error ? cause.message : String(cause)).split("\n")[0] ?? ""

/**
 * Holds `<dataDir>/gateway.lock` until the scope closes, so that one gateway at a time works in a data dir. A lock
 * left by `kill -9` is taken over at once (pid, start time and boot are compared); one left by a process that cannot
 * be looked up (another container or machine) after 10 s without a heartbeat. Fails when another gateway holds it.
 * `lost` completes if the lock was taken away, which only happens to a process that stood still for 10 s.
 */
export const lockDataDir = Effect.fn("lockDataDir")(function* (
  dataDir: string,
  timing: LockTiming = TIMING
): Effect.fn.Return<{ readonly lost: Effect.Effect<void> }, DatabaseStartError, Scope.Scope> {
  const path = join(dataDir, "gateway.lock")
  const self: Holder = {
    pid: process.pid,
    start: processStart(process.pid) ?? "",
    boot: bootId(),
    namespace: namespaceId(),
    nonce: randomBytes(8).toString("hex")
  }
  const text = JSON.stringify(self)
  const lost = yield* Deferred.make<void>()

  const acquire = Effect.tryPromise({
    try: async (signal): Promise<Outcome> => {
      fs.mkdirSync(dataDir, { recursive: true, mode: 0o700 })
      const deadline = performance.now() + timing.abandonedMs + 2 * timing.heartbeatMs
      while (true) {
        const outcome = take(path, self, timing.abandonedMs)
        if (outcome._tag === "Held" && signal.aborted) fs.rmSync(path, { force: true })
        if (outcome._tag !== "Unknown" || performance.now() > deadline) return outcome
        await pause(timing.heartbeatMs / 4, undefined, { signal })
      }
    },
    catch: (cause) => new DatabaseStartError({ message: `The data dir ${dataDir} cannot be used: ${oneLine(cause)}` })
  })

  const outcome = yield* acquire
  if (outcome._tag !== "Held") {
    const who = outcome.holder === undefined ? "" : ` (pid ${outcome.holder.pid})`
    return yield* new DatabaseStartError({
      message: `Another gateway${who} is using the data dir ${dataDir}; stop it or set another GATEWAY_DATA_DIR`
    })
  }
  const heartbeat = setInterval(() => {
    if (readText(path) !== text) {
      clearInterval(heartbeat)
      Deferred.doneUnsafe(lost, Effect.void)
      return
    }
    const now = new Date()
    fs.utimes(path, now, now, () => {})
  }, timing.heartbeatMs)
  heartbeat.unref()
  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      clearInterval(heartbeat)
      if (readText(path) === text) fs.rmSync(path, { force: true })
    })
  )
  return { lost: Deferred.await(lost) }
})
