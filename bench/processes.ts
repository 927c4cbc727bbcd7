import { spawn, spawnSync, type ChildProcess } from "node:child_process"
import { readdirSync, readFileSync } from "node:fs"
import { get } from "node:http"
import { availableParallelism } from "node:os"
import { fileURLToPath } from "node:url"

/** The gateway under test has core 0 to itself; stub and load generator share core 1. */
export const gatewayCore = 0
export const loadCore = 1

/** Whether processes can be pinned to cores here. */
export const canPin = availableParallelism() > 1 && spawnSync("taskset", ["-V"]).status === 0

const root = fileURLToPath(new URL("..", import.meta.url))

export interface StartOptions {
  readonly core: number
  /** Arguments for node, relative to the checkout. */
  readonly args: ReadonlyArray<string>
  readonly env?: Readonly<Record<string, string>>
  readonly ipc?: boolean
}

/** A process of the bench. */
export interface Child {
  readonly pid: number
  readonly process: ChildProcess
  /** The last 8 KB it printed. */
  readonly printed: () => string
  readonly exited: () => boolean
  readonly end: Promise<void>
}

const children = new Set<Child>()

process.on("exit", () => {
  for (const child of children) child.process.kill("SIGKILL")
})
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.on(signal, () => void Promise.all([...children].map((child) => stop(child))).then(() => process.exit(130)))
}

/** Starts this Node on a core. */
export const start = (options: StartOptions): Child => {
  const [command, prefix] = canPin
    ? ["taskset", ["-c", String(options.core), process.execPath]]
    : [process.execPath, []]
  const child = spawn(command, [...prefix, ...options.args], {
    cwd: root,
    env: { ...process.env, ...options.env },
    stdio: options.ipc === true ? ["ignore", "pipe", "pipe", "ipc"] : ["ignore", "pipe", "pipe"]
  })
  let printed = ""
  const print = (bytes: Buffer) => {
    printed = (printed + bytes.toString()).slice(-8_192)
  }
  child.stdout?.on("data", print)
  child.stderr?.on("data", print)
  const end = new Promise<void>((resolve) => {
    child.once("exit", () => resolve())
    child.once("error", (error) => {
      printed += error.message
      resolve()
    })
  })
  const handle: Child = {
    pid: child.pid ?? 0,
    process: child,
    printed: () => printed,
    exited: () => child.exitCode !== null || child.signalCode !== null || child.pid === undefined,
    end
  }
  children.add(handle)
  void end.then(() => children.delete(handle))
  return handle
}

/** Asks a process to end, and makes it after `grace` ms. Resolves to whether it went by itself. */
export const stop = async (child: Child, grace = 15_000): Promise<boolean> => {
  if (child.exited()) return true
  child.process.kill("SIGTERM")
  let forced = false
  const timer = setTimeout(() => {
    forced = true
    child.process.kill("SIGKILL")
  }, grace)
  await child.end
  clearTimeout(timer)
  return !forced
}

/** One message to a child, one back. */
export const ask = <Answer>(child: Child, message: object): Promise<Answer> => {
  const answer = hear<Answer>(child)
  child.process.send(message)
  return answer
}

/** The child's next message; fails when the child ends. */
export const hear = <Answer>(child: Child): Promise<Answer> =>
  new Promise((resolve, reject) => {
    child.process.once("message", (message) => resolve(message as Answer))
    void child.end.then(() => reject(new Error(`A child of the bench ended: ${child.printed()}`)))
  })

const statusOf = (url: string): Promise<number> =>
  new Promise((resolve) => {
    const request = get(url, { agent: false, timeout: 2_000 }, (response) => {
      response.resume()
      resolve(response.statusCode ?? 0)
    })
    request.on("timeout", () => request.destroy())
    request.on("error", () => resolve(0))
  })

/** Milliseconds until the URL answers as wanted; undefined when the child ends first or `timeout` ms pass. */
export const answered = async (
  child: Child,
  url: string,
  wanted: (status: number) => boolean,
  timeout = 30_000
): Promise<number | undefined> => {
  const began = performance.now()
  while (performance.now() - began < timeout && !child.exited()) {
    if (wanted(await statusOf(url))) return performance.now() - began
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
  return undefined
}

/** Resident memory of one process in MB (10^6 bytes); undefined where it cannot be read. */
export const residentMemory = (pid: number): number | undefined => {
  try {
    const kilobytes = /^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]
    return kilobytes === undefined ? undefined : (Number(kilobytes) * 1_024) / 1e6
  } catch {
    const kilobytes = Number(spawnSync("ps", ["-o", "rss=", "-p", String(pid)]).stdout?.toString())
    return kilobytes > 0 ? (kilobytes * 1_024) / 1e6 : undefined
  }
}

const statOf = (pid: string): { readonly parent: number; readonly ticks: number } | undefined => {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8")
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ")
    return { parent: Number(fields[1]), ticks: Number(fields[11]) + Number(fields[12]) }
  } catch {
    return undefined
  }
}

/** Processor seconds this machine spent on anything at all since it was started; 0 where /proc is missing. */
export const machineSeconds = (): number => {
  try {
    const [, user = 0, nice = 0, system = 0, , , irq = 0, soft = 0, steal = 0] = readFileSync("/proc/stat", "utf8")
      .slice(0, 200)
      .split(/\s+/, 9)
      .map(Number)
    return (user + nice + system + irq + soft + steal) / 100
  } catch {
    return 0
  }
}

/** The running processes; empty where /proc is missing. */
const processTable = (): ReadonlyMap<number, NonNullable<ReturnType<typeof statOf>>> => {
  try {
    return new Map(
      readdirSync("/proc")
        .filter((name) => /^\d+$/.test(name))
        .flatMap((name) => {
          const stat = statOf(name)
          return stat === undefined ? [] : [[Number(name), stat] as const]
        })
    )
  } catch {
    return new Map()
  }
}

/** Processor seconds of a process, its threads included and its children (PostgreSQL) not; 0 where /proc is missing. */
export const processorSeconds = (pid: number): number => (statOf(String(pid))?.ticks ?? 0) / 100

/** Moves everything below a process (its PostgreSQL) to another core; what that starts later follows. */
export const moveChildren = (pid: number, core: number): void => {
  if (!canPin) return
  const known = processTable()
  const below = (id: number): boolean => {
    const parent = known.get(id)?.parent ?? 0
    return parent === pid || (parent > 1 && below(parent))
  }
  for (const id of known.keys()) if (below(id)) spawnSync("taskset", ["-a", "-p", "-c", String(core), String(id)])
}
