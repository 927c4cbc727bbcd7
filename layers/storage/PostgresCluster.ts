import { spawnSync } from "node:child_process"
import { randomBytes } from "node:crypto"
import * as fs from "node:fs"
import { createServer } from "node:net"
import { tmpdir } from "node:os"
import { join, resolve } from "node:path"
import { setTimeout as pause } from "node:timers/promises"
import { processStart } from "#layers/storage/DataDirLock.ts"
import {
  findBinaries,
  type PostgresBinaries,
  postgresEnvironment,
  type RunAs
} from "#layers/storage/PostgresBinaries.ts"
import { DatabaseStartError } from "#services/storage/DatabaseServer.ts"

/** Where and how the embedded server runs. */
export interface EmbeddedPostgresOptions {
  /** The gateway's data dir; the database lives in `postgres/` inside it. */
  readonly dataDir: string
  /** `false` gives up safety against power loss for speed: tests only. */
  readonly durable?: boolean
  /** Loopback TCP instead of a unix socket; the only way on Windows. */
  readonly tcp?: boolean
  /** Further settings of postgresql.conf; they win over the built-in ones. */
  readonly settings?: Readonly<Record<string, string>>
}

const USER = "sluice"
const DATABASE = "postgres"
/** The uid and gid PostgreSQL gets when the gateway runs as root, which PostgreSQL refuses to. */
const NOBODY = 65534
export const START_TIMEOUT_MS = 120_000
const LOG_LIMIT_BYTES = 10 * 1024 * 1024
/** The shortest limit of a unix socket's path (macOS), less the socket's own name and the terminating zero. */
const SOCKET_DIRECTORY_LIMIT = 104 - "/.s.PGSQL.65535".length - 1
const PORT = 5432

/** One database cluster on disk and how to reach it. */
export interface Cluster {
  readonly options: EmbeddedPostgresOptions
  readonly home: string
  readonly data: string
  readonly log: string
  readonly binaries: PostgresBinaries
  readonly runAs: RunAs | undefined
  readonly password: string
  /** As PostgreSQL is told, relative to its data directory where possible. */
  readonly socketDirectory: string | undefined
  readonly host: string
  readonly port: number
}

export const fail = (message: string) => new DatabaseStartError({ message })

export const describe = (cause: unknown): DatabaseStartError =>
  cause instanceof DatabaseStartError
    ? cause
    : fail(`The embedded PostgreSQL did not start: ${cause instanceof Error ? cause.message : String(cause)}`)

export const isAlive = (pid: number): boolean => processStart(pid) !== undefined

const canSignal = (pid: number): boolean => {
  try {
    process.kill(pid, 0)
    return true
  } catch (cause) {
    return (cause as NodeJS.ErrnoException).code !== "ESRCH"
  }
}

export const signal = (pid: number, name: NodeJS.Signals): void => {
  try {
    process.kill(pid, name)
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== "ESRCH") throw cause
  }
}

/** The user for PostgreSQL: none (the gateway's own) unless that is root; then the owner of an existing cluster. */
const chooseUser = (data: string): RunAs | undefined => {
  if (process.getuid?.() !== 0) return undefined
  if (process.platform !== "linux") {
    throw fail(`PostgreSQL refuses to run as root: run the gateway as another user, or set DATABASE_URL`)
  }
  if (!fs.existsSync(data)) return { uid: NOBODY, gid: NOBODY }
  const { gid, uid } = fs.statSync(data)
  return uid === 0 ? { uid: NOBODY, gid: NOBODY } : { uid, gid }
}

const chownAll = (path: string, user: RunAs): void => {
  fs.lchownSync(path, user.uid, user.gid)
  if (!fs.lstatSync(path).isDirectory()) return
  for (const name of fs.readdirSync(path)) chownAll(join(path, name), user)
}

const ensureDirectory = (path: string, mode: number, owner: RunAs | undefined): void => {
  fs.mkdirSync(path, { recursive: true })
  fs.chmodSync(path, mode)
  if (owner !== undefined) fs.chownSync(path, owner.uid, owner.gid)
}

/** Reads a secret kept beside the cluster, or makes it; only the gateway's user can read it. */
const keepPassword = (path: string, data: string): string => {
  if (fs.existsSync(path)) return fs.readFileSync(path, "utf8").trim()
  if (fs.existsSync(data)) throw fail(`${path} is missing: it holds the password of the database in ${data}`)
  const made = randomBytes(24).toString("base64url")
  fs.writeFileSync(path, made, { mode: 0o600 })
  return made
}

const freePort = (): Promise<number> =>
  new Promise((done, reject) => {
    const server = createServer()
    server.once("error", reject)
    server.listen(0, "127.0.0.1", () => {
      const address = server.address()
      server.close(() =>
        typeof address === "object" && address !== null ? done(address.port) : reject(new Error("no free port"))
      )
    })
  })

/** A short directory for the socket when the data dir's path is too long for one; kept across starts. */
const shortSocketDirectory = (home: string, owner: RunAs | undefined): string => {
  const note = join(home, "socket-directory")
  if (fs.existsSync(note)) {
    const kept = fs.readFileSync(note, "utf8").trim()
    const stat = fs.lstatSync(kept, { throwIfNoEntry: false })
    if (stat?.isDirectory() === true && stat.uid === (owner?.uid ?? process.getuid?.())) return kept
  }
  const made = fs.mkdtempSync(join(tmpdir(), "sluice-"))
  ensureDirectory(made, 0o700, owner)
  fs.writeFileSync(note, made, { mode: 0o600 })
  return made
}

/**
 * What `-D` says. As root on Linux the data dir may lie under directories that only root may pass (`/root`); the
 * server is then started inside its directory and knows it as the working directory, so nothing above is ever crossed.
 */
export const dataArgument = (cluster: Cluster, directory = cluster.data): string =>
  cluster.runAs === undefined ? directory : "/proc/self/cwd"

const initialize = (cluster: Cluster): void => {
  const making = join(cluster.home, "data.new")
  const passwordFile = join(cluster.home, "data.password")
  fs.rmSync(making, { recursive: true, force: true })
  ensureDirectory(making, 0o700, cluster.runAs)
  try {
    fs.writeFileSync(passwordFile, cluster.password, { mode: 0o600 })
    if (cluster.runAs !== undefined) fs.chownSync(passwordFile, cluster.runAs.uid, cluster.runAs.gid)
    const made = spawnSync(
      cluster.binaries.initdb,
      [
        "-D",
        dataArgument(cluster, making),
        `--username=${USER}`,
        "--pwfile=../data.password",
        "--auth=scram-sha-256",
        "--encoding=UTF8",
        // Sorts like C, and unlike C knows upper and lower case beyond ASCII.
        "--locale=C",
        "--locale-provider=builtin",
        "--builtin-locale=C.UTF-8",
        "--data-checksums",
        "--no-instructions",
        ...(cluster.options.durable === false ? ["--no-sync"] : [])
      ],
      { cwd: making, env: postgresEnvironment, encoding: "utf8", timeout: START_TIMEOUT_MS, ...cluster.runAs }
    )
    if (made.error !== undefined) throw made.error
    if (made.status !== 0) {
      const lines = `${made.stdout}\n${made.stderr}`.split("\n")
      const why = lines.find((line) => /error|fatal|could not/i.test(line)) ?? `exit code ${made.status}`
      if (why.includes("look up effective user ID")) {
        throw fail(
          `PostgreSQL wants its user to have a name: add uid ${process.getuid?.()} to /etc/passwd, or set DATABASE_URL`
        )
      }
      throw fail(`The embedded PostgreSQL could not be initialized: ${why.trim()}`)
    }
    fs.renameSync(making, cluster.data)
  } finally {
    fs.rmSync(passwordFile, { force: true })
  }
}

export const prepare = async (options: EmbeddedPostgresOptions): Promise<Cluster> => {
  const home = join(resolve(options.dataDir), "postgres")
  const data = join(home, "data")
  const runAs = chooseUser(data)
  // Others may pass, not list: the server's user must reach the socket directory beside its data.
  ensureDirectory(home, runAs === undefined ? 0o700 : 0o711, undefined)
  const binaries = findBinaries(join(home, "programs"), runAs)
  const tcp = options.tcp ?? process.platform === "win32"
  const sockets = join(home, "run")
  const fits = Buffer.byteLength(sockets) <= SOCKET_DIRECTORY_LIMIT
  let host = "127.0.0.1"
  let socketDirectory: string | undefined
  if (!tcp) {
    host = fits ? sockets : shortSocketDirectory(home, runAs)
    if (fits) ensureDirectory(sockets, 0o700, runAs)
    socketDirectory = fits ? "../run" : host
  }
  const cluster: Cluster = {
    options,
    home,
    data,
    log: join(home, "postgres.log"),
    binaries,
    runAs,
    password: keepPassword(join(home, "password"), data),
    socketDirectory,
    host,
    port: tcp ? await freePort() : PORT
  }
  if (fs.existsSync(data)) {
    const major = fs.readFileSync(join(data, "PG_VERSION"), "utf8").trim()
    if (major !== String(binaries.majorVersion)) {
      throw fail(`${data} was made by PostgreSQL ${major}, this gateway brings PostgreSQL ${binaries.majorVersion}`)
    }
    if (runAs !== undefined && fs.statSync(data).uid === 0) chownAll(data, runAs)
  } else {
    initialize(cluster)
  }
  return cluster
}

export const readPostmasterFile = (cluster: Cluster): { pid: number; ready: boolean } | undefined => {
  try {
    const lines = fs.readFileSync(join(cluster.data, "postmaster.pid"), "utf8").split("\n")
    const pid = Number(lines[0])
    return Number.isInteger(pid) && pid > 0 ? { pid, ready: lines[7]?.trim() === "ready" } : undefined
  } catch {
    return undefined
  }
}

/** Processes that work in this cluster: the postmaster and its children all stand in its directory. */
const processesOf = (cluster: Cluster): ReadonlyArray<number> => {
  if (process.platform !== "linux") {
    const pid = readPostmasterFile(cluster)?.pid
    if (pid === undefined || !isAlive(pid)) return []
    const command = spawnSync("ps", ["-o", "command=", "-p", String(pid)], { encoding: "utf8" })
    return command.error !== undefined || command.stdout.includes(cluster.data) ? [pid] : []
  }
  const data = fs.realpathSync(cluster.data)
  return fs.readdirSync("/proc").flatMap((name) => {
    if (!/^\d+$/.test(name)) return []
    try {
      const pid = Number(name)
      return fs.readlinkSync(`/proc/${name}/cwd`) === data && isAlive(pid) ? [pid] : []
    } catch {
      return []
    }
  })
}

/**
 * Ends what an earlier gateway left behind, so that the cluster has no other user, and removes a `postmaster.pid`
 * whose pid now belongs to an unrelated process, which PostgreSQL would take for a running server.
 */
export const stopOrphans = async (cluster: Cluster): Promise<void> => {
  const began = performance.now()
  let step = 0
  while (true) {
    const left = processesOf(cluster)
    const written = readPostmasterFile(cluster)
    if (left.length === 0) {
      // Asked as PostgreSQL asks, to which a zombie (nobody reaps in some containers) counts as running.
      if (written !== undefined && canSignal(written.pid)) fs.rmSync(join(cluster.data, "postmaster.pid"))
      if (cluster.socketDirectory !== undefined) {
        fs.rmSync(join(cluster.host, `.s.PGSQL.${cluster.port}.lock`), { force: true })
      }
      return
    }
    const waited = performance.now() - began
    if (step === 0) {
      if (written !== undefined && left.includes(written.pid)) signalPostmaster(cluster, written.pid, "SIGINT")
      step = 1
    } else if (step === 1 && waited > 10_000) {
      for (const pid of left) signal(pid, "SIGQUIT")
      step = 2
    } else if (step === 2 && waited > 15_000) {
      for (const pid of left) signal(pid, "SIGKILL")
      step = 3
    } else if (waited > 20_000) {
      throw fail(`A PostgreSQL of an earlier gateway (pid ${left.join(", ")}) does not end`)
    }
    await pause(10)
  }
}

export const signalPostmaster = (cluster: Cluster, pid: number, name: "SIGINT" | "SIGQUIT" | "SIGKILL"): void => {
  if (process.platform === "win32" && name !== "SIGKILL") {
    spawnSync(cluster.binaries.pgCtl, ["kill", name.slice(3), String(pid)], { env: postgresEnvironment })
  } else {
    signal(pid, name)
  }
}

/** Moves a log that has grown too large aside, in a way that works while PostgreSQL has it open for appending. */
export const rotateLog = (path: string): void => {
  const stat = fs.statSync(path, { throwIfNoEntry: false })
  if (stat === undefined || stat.size <= LOG_LIMIT_BYTES) return
  fs.copyFileSync(path, `${path}.1`)
  fs.truncateSync(path, 0)
}

export const settingsOf = (cluster: Cluster): Readonly<Record<string, string>> => ({
  listen_addresses: cluster.socketDirectory === undefined ? "127.0.0.1" : "",
  port: String(cluster.port),
  unix_socket_directories: cluster.socketDirectory ?? "",
  unix_socket_permissions: "0700",
  max_connections: "100",
  shared_buffers: "64MB",
  work_mem: "8MB",
  maintenance_work_mem: "64MB",
  min_wal_size: "80MB",
  max_wal_size: "512MB",
  synchronous_commit: "on",
  wal_compression: "on",
  max_wal_senders: "2",
  checkpoint_timeout: "10min",
  log_checkpoints: "off",
  // The pages of a small machine are better spent on one query's answer than on several workers.
  max_parallel_workers_per_gather: "0",
  io_method: "sync",
  jit: "off",
  timezone: "UTC",
  log_timezone: "UTC",
  log_line_prefix: "%m [%p] ",
  ...(cluster.options.durable === false
    ? { fsync: "off", full_page_writes: "off" }
    : { fsync: "on", full_page_writes: "on" }),
  ...cluster.options.settings
})

/** How clients reach the cluster; holds the password. */
export const connectionUrl = (cluster: Cluster): string => {
  const socket = cluster.socketDirectory !== undefined
  const url = new URL(`postgresql://${USER}:${cluster.password}@${socket ? "localhost" : cluster.host}/${DATABASE}`)
  if (socket) {
    url.searchParams.set("host", cluster.host)
    url.searchParams.set("port", String(cluster.port))
  } else {
    url.port = String(cluster.port)
  }
  return url.href
}
