import { type ChildProcess, spawn } from "node:child_process"
import * as fs from "node:fs"
import { resolve } from "node:path"
import { setTimeout as pause } from "node:timers/promises"
import { Effect, Layer, Redacted, type Scope } from "effect"
import { lockDataDir } from "#layers/storage/DataDirLock.ts"
import { postgresEnvironment } from "#layers/storage/PostgresBinaries.ts"
import {
  type Cluster,
  connectionUrl,
  dataArgument,
  describe,
  type EmbeddedPostgresOptions,
  fail,
  prepare,
  readPostmasterFile,
  rotateLog,
  settingsOf,
  signal,
  signalPostmaster,
  START_TIMEOUT_MS,
  stopOrphans
} from "#layers/storage/PostgresCluster.ts"
import { DatabaseServer, type DatabaseServerState, type DatabaseStartError } from "#services/storage/DatabaseServer.ts"

/** What PostgreSQL itself said last about why it stopped. */
const lastComplaint = (cluster: Cluster, since: number): string => {
  try {
    const text = fs.readFileSync(cluster.log).subarray(since).toString("utf8")
    const lines = text.split("\n").filter((line) => /(FATAL|PANIC|error while loading|could not):? /.test(line))
    return lines.at(-1)?.replace(/^.*?(FATAL|PANIC): +/, "") ?? "it ended without saying why"
  } catch {
    return "its log cannot be read"
  }
}

/** Ends PostgreSQL when this process is gone: it sees its standard input close, also after `kill -9`. */
const guard = (cluster: Cluster, pid: number): ChildProcess | undefined => {
  if (process.platform === "win32") return undefined
  const script = 'while read -r _; do :; done; kill -INT "$0"'
  const child = spawn("/bin/sh", ["-c", script, String(pid)], {
    cwd: "/",
    env: postgresEnvironment,
    detached: true,
    stdio: ["pipe", "ignore", "ignore"],
    ...cluster.runAs
  })
  child.on("error", () => {})
  child.unref()
  return child
}

interface Running {
  readonly pid: number
  readonly ended: Promise<void>
  readonly hasEnded: () => boolean
  readonly guard: ChildProcess | undefined
}

const start = async (cluster: Cluster, aborted: () => boolean): Promise<Running> => {
  rotateLog(cluster.log)
  const log = fs.openSync(cluster.log, "a", 0o600)
  const since = fs.fstatSync(log).size
  const flags = Object.entries(settingsOf(cluster)).flatMap(([name, value]) => ["-c", `${name}=${value}`])
  const child = spawn(cluster.binaries.postgres, ["-D", dataArgument(cluster), ...flags], {
    cwd: cluster.data,
    env: postgresEnvironment,
    // Its own session, so that Ctrl-C in the gateway's terminal does not end the database before the gateway drained.
    detached: true,
    stdio: ["ignore", log, log],
    windowsHide: true,
    ...cluster.runAs
  })
  fs.closeSync(log)
  let over = false
  let problem: Error | undefined
  const ended = new Promise<void>((done) => {
    const finish = () => {
      over = true
      done()
    }
    child.once("error", (cause) => {
      problem = cause
      if (child.pid === undefined) finish()
    })
    child.once("exit", finish)
  })
  child.unref()
  const began = performance.now()
  while (true) {
    if (over || child.pid === undefined) {
      if (child.pid === undefined) await ended
      throw fail(`The embedded PostgreSQL did not start: ${problem?.message ?? lastComplaint(cluster, since)}`)
    }
    const written = readPostmasterFile(cluster)
    if (written?.ready === true && (written.pid === child.pid || process.platform === "win32")) break
    if (performance.now() - began > START_TIMEOUT_MS || aborted()) {
      signal(child.pid, "SIGQUIT")
      await ended
      throw fail(`The embedded PostgreSQL was not ready after ${START_TIMEOUT_MS / 1000} s; see ${cluster.log}`)
    }
    await pause(5)
  }
  return { pid: child.pid, ended, hasEnded: () => over, guard: guard(cluster, child.pid) }
}

/** Fast shutdown (clients are cut off, data is flushed), then immediate (recovery at the next start). */
const stop = async (cluster: Cluster, running: Running): Promise<void> => {
  const within = async (ms: number) => {
    const timer = new AbortController()
    await Promise.race([running.ended, pause(ms, undefined, { signal: timer.signal }).catch(() => undefined)])
    timer.abort()
  }
  if (!running.hasEnded()) {
    signalPostmaster(cluster, running.pid, "SIGINT")
    await within(10_000)
  }
  if (!running.hasEnded()) {
    signalPostmaster(cluster, running.pid, "SIGQUIT")
    await within(5_000)
  }
  if (!running.hasEnded()) {
    signalPostmaster(cluster, running.pid, "SIGKILL")
    await running.ended
  }
  running.guard?.kill("SIGKILL")
}

/**
 * Brings up PostgreSQL inside `dataDir` and keeps it up until the scope closes. The data dir is locked first; what a
 * killed gateway left running is stopped; the cluster is made at the first start; a server that dies while the
 * gateway lives is started again (after 0.1 s, then at growing intervals up to 5 s). As root, PostgreSQL runs as uid
 * 65534 or as the owner of the existing cluster.
 */
export const make = Effect.fn("EmbeddedPostgres.make")(function* (
  options: EmbeddedPostgresOptions
): Effect.fn.Return<DatabaseServer["Service"], DatabaseStartError, Scope.Scope> {
  const lock = yield* lockDataDir(resolve(options.dataDir))
  let state: DatabaseServerState = "ready"
  const closing = new AbortController()
  let running: Running | undefined
  let supervision: Promise<void> = Promise.resolve()
  const runLog = Effect.runForkWith(yield* Effect.context())

  const supervise = async (cluster: Cluster): Promise<void> => {
    let wait = 100
    while (!closing.signal.aborted && running !== undefined) {
      const began = performance.now()
      await running.ended
      if (closing.signal.aborted) return
      state = "restarting"
      running.guard?.kill("SIGKILL")
      runLog(Effect.logError(`The embedded PostgreSQL died; starting it again. See ${cluster.log}`))
      if (performance.now() - began > 60_000) wait = 100
      while (!closing.signal.aborted) {
        await pause(wait, undefined, { signal: closing.signal }).catch(() => undefined)
        wait = Math.min(wait * 2, 5_000)
        try {
          if (closing.signal.aborted) return
          await stopOrphans(cluster)
          running = await start(cluster, () => closing.signal.aborted)
          state = "ready"
          runLog(Effect.logInfo("The embedded PostgreSQL is back"))
          break
        } catch (cause) {
          if (!closing.signal.aborted) runLog(Effect.logError(describe(cause).message))
        }
      }
    }
  }

  const cluster = yield* Effect.acquireRelease(
    Effect.tryPromise({
      try: async () => {
        const prepared = await prepare(options)
        await stopOrphans(prepared)
        running = await start(prepared, () => closing.signal.aborted)
        supervision = supervise(prepared)
        return prepared
      },
      catch: describe
    }),
    (cluster) =>
      Effect.promise(async () => {
        closing.abort()
        const last = running
        if (last !== undefined) await stop(cluster, last)
        await supervision
        if (running !== undefined && running !== last) await stop(cluster, running)
      })
  )

  const housekeeping = setInterval(() => {
    try {
      rotateLog(cluster.log)
    } catch {
      // A full disk shows elsewhere first.
    }
  }, 60_000)
  housekeeping.unref()
  yield* Effect.addFinalizer(() => Effect.sync(() => clearInterval(housekeeping)))

  // Another gateway took the data dir over while this process stood still: two servers on one cluster destroy it.
  yield* lock.lost.pipe(
    Effect.andThen(Effect.logFatal("Another gateway took over the data dir; stopping the embedded PostgreSQL")),
    Effect.andThen(
      Effect.sync(() => {
        closing.abort()
        state = "restarting"
        if (running !== undefined && !running.hasEnded()) signalPostmaster(cluster, running.pid, "SIGQUIT")
      })
    ),
    Effect.forkScoped
  )

  return DatabaseServer.of({
    url: Redacted.make(connectionUrl(cluster)),
    kind: "embedded",
    state: Effect.sync(() => state)
  })
})

/** PostgreSQL as a child of this process; see {@link make}. */
export const layer = (options: EmbeddedPostgresOptions): Layer.Layer<DatabaseServer, DatabaseStartError> =>
  Layer.effect(DatabaseServer, make(options))

/** Somebody else's PostgreSQL, as `DATABASE_URL` names it. The data dir is not locked. */
export const layerExternal = (databaseUrl: Redacted.Redacted<string>): Layer.Layer<DatabaseServer> =>
  Layer.succeed(DatabaseServer, { url: databaseUrl, kind: "external", state: Effect.succeed("ready" as const) })
