import { freePort } from "#test/support/Gateway.ts"
import { makeDataDir, prepareSluice, removeDataDir, startSluice, type Sluice } from "./sluice.ts"
import { answered, gatewayCore, start, stop, type Child } from "./processes.ts"

/** Something that calls can be sent to. */
export interface Target {
  readonly name: TargetName
  readonly port: number
  /** Headers that every call needs. */
  readonly headers: Readonly<Record<string, string>>
  /** The process whose processor time and memory count; none for the stub itself. */
  readonly child: Child | undefined
  /** Milliseconds until the first start was ready, and a later one on the same data. */
  readonly startup: { readonly first: number; readonly later: number } | undefined
  readonly notes: ReadonlyArray<string>
  readonly stop: () => Promise<void>
}

export type TargetName = "direct" | "bare" | "portkey" | "sluice"

export const titles: Readonly<Record<TargetName, string>> = {
  direct: "stub, direct",
  bare: "bare Node proxy",
  portkey: "@portkey-ai/gateway",
  sluice: "Sluice"
}

const plainHeaders = { authorization: "Bearer bench" }

/** Starts a process that listens on a port, and times it until it answers. */
const listen = async (args: (port: number) => ReadonlyArray<string>, env: Readonly<Record<string, string>> = {}) => {
  const port = await freePort()
  const child = start({ core: gatewayCore, args: args(port), env })
  const startup = await answered(child, `http://127.0.0.1:${port}/v1/models`, (status) => status > 0)
  if (startup !== undefined) return { child, port, startup }
  await stop(child)
  throw new Error(`It did not start: ${child.printed().trim()}`)
}

/** Starts twice, keeps the second. */
const listenTwice = async (args: (port: number) => ReadonlyArray<string>, env?: Readonly<Record<string, string>>) => {
  const first = await listen(args, env)
  await stop(first.child)
  const later = await listen(args, env)
  return { ...later, startup: { first: first.startup, later: later.startup } }
}

const openBare = async (upstreamPort: number, nodeFlags: ReadonlyArray<string>): Promise<Target> => {
  const { child, port, startup } = await listenTwice((port) => [
    ...nodeFlags,
    "bench/bare-proxy.ts",
    String(port),
    `http://127.0.0.1:${upstreamPort}`
  ])
  const end = async () => void (await stop(child))
  return { name: "bare", port, headers: plainHeaders, child, startup, notes: [], stop: end }
}

const openPortkey = async (upstreamPort: number): Promise<Target> => {
  const { child, port, startup } = await listenTwice(
    (port) => [
      "--import",
      "./bench/peer-preload.ts",
      "node_modules/@portkey-ai/gateway/build/start-server.js",
      "--headless",
      `--port=${port}`
    ],
    { NODE_ENV: "production" }
  )
  const headers = {
    ...plainHeaders,
    "x-portkey-provider": "openai",
    "x-portkey-custom-host": `http://127.0.0.1:${upstreamPort}/v1`
  }
  const end = async () => void (await stop(child))
  return { name: "portkey", port, headers, child, startup, notes: [], stop: end }
}

const openSluice = async (upstreamPort: number, nodeFlags: ReadonlyArray<string>): Promise<Target> => {
  const dataDir = makeDataDir()
  let current: Sluice | undefined
  try {
    const first = (current = await startSluice(dataDir))
    const { key, guarded } = await prepareSluice(first, `http://127.0.0.1:${upstreamPort}/v1`)
    const drained = await stop(first.child)
    const later = (current = await startSluice(dataDir, nodeFlags))
    return {
      name: "sluice",
      port: later.port,
      headers: { authorization: `Bearer ${key}` },
      child: later.child,
      startup: { first: first.startup, later: later.startup },
      notes: [
        ...(guarded ? [] : ["Sluice has no POST /guardrail/new yet: it ran without the pre guardrail."]),
        ...(drained ? [] : ["Sluice did not end within 15 s of SIGTERM."])
      ],
      stop: async () => {
        await stop(later.child)
        removeDataDir(dataDir)
      }
    }
  } catch (error) {
    if (current !== undefined) await stop(current.child)
    removeDataDir(dataDir)
    throw error
  }
}

/** Starts a target in front of the upstream; fails with a message when it does not come up. */
export const openTarget = async (
  name: TargetName,
  upstreamPort: number,
  nodeFlags: ReadonlyArray<string> = []
): Promise<Target> => {
  switch (name) {
    case "direct":
      return {
        name,
        port: upstreamPort,
        headers: plainHeaders,
        child: undefined,
        startup: undefined,
        notes: [],
        stop: () => Promise.resolve()
      }
    case "bare":
      return openBare(upstreamPort, nodeFlags)
    case "portkey":
      return openPortkey(upstreamPort)
    case "sluice":
      return openSluice(upstreamPort, nodeFlags)
  }
}
