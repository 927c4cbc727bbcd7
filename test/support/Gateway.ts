/** A gateway as its users meet it: a process of its own, started as the README starts it. */
import { type ChildProcess, spawn } from "node:child_process"
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { createServer } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"

const root = fileURLToPath(new URL("../..", import.meta.url))

/** What `npm start` gives Node: flags, entry and command. */
export const startArguments: ReadonlyArray<string> = (
  JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { scripts: { start: string } }
).scripts.start
  .split(" ")
  .slice(1)

/** Shared by the gateways of all tests, each of which has a data dir of its own. */
const compileCache = join(tmpdir(), `sluice-tests-${process.getuid?.() ?? 0}`, "compile-cache")

export interface GatewayOptions {
  /** Unset: an embedded PostgreSQL in the data dir. */
  readonly databaseUrl?: string
  /** Unset: a fresh temporary one, removed by `stop`. */
  readonly dataDir?: string
  readonly env?: Readonly<Record<string, string>>
}

export interface Reply {
  readonly status: number
  readonly headers: Headers
  readonly text: string
  /** The parsed body; undefined when it is no JSON. */
  readonly json: unknown
}

const canListen = (port: number) =>
  new Promise<boolean>((resolve) => {
    const server = createServer()
    server.once("error", () => resolve(false))
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)))
  })

/** Where systems take the ports of outgoing connections from: another test's could get one before the gateway has it. */
const ephemeral = 32_768

/** A port that was free a moment ago, and that no outgoing connection takes meanwhile. */
export const freePort = async (): Promise<number> => {
  for (let tries = 0; tries < 100; tries++) {
    const port = 10_000 + Math.floor(Math.random() * (ephemeral - 10_000))
    if (await canListen(port)) return port
  }
  throw new Error("no port is free")
}

const parsed = (text: string): unknown => {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** The master key of every test gateway. */
export const masterKey = "mk-test-000000000000000000000000"
/** The secret that its administrator tokens are signed with. */
export const jwtSecret = "jwt-secret-of-the-tests-0123456789abcdef"

export class Gateway {
  readonly url: string
  readonly opsUrl: string
  readonly dataDir: string
  readonly child: ChildProcess
  /** Everything it has printed so far, both streams. */
  output = ""
  readonly #ownsDataDir: boolean
  readonly #exited: Promise<number | null>

  constructor(port: number, opsPort: number, dataDir: string, ownsDataDir: boolean, child: ChildProcess) {
    this.url = `http://127.0.0.1:${port}`
    this.opsUrl = `http://127.0.0.1:${opsPort}`
    this.dataDir = dataDir
    this.#ownsDataDir = ownsDataDir
    this.child = child
    const collect = (chunk: Buffer) => void (this.output += chunk.toString())
    child.stdout?.on("data", collect)
    child.stderr?.on("data", collect)
    this.#exited = new Promise((resolve) => child.once("exit", resolve))
  }

  /** Sends one request with a bearer token; an object body goes as JSON. */
  async request(
    method: string,
    path: string,
    options: { readonly token?: string; readonly body?: unknown; readonly headers?: Record<string, string> } = {}
  ): Promise<Reply> {
    const response = await fetch(this.url + path, {
      method,
      headers: {
        ...(options.token === undefined ? {} : { authorization: `Bearer ${options.token}` }),
        ...(options.body === undefined ? {} : { "content-type": "application/json" }),
        ...options.headers
      },
      ...(options.body === undefined
        ? {}
        : { body: typeof options.body === "string" ? options.body : JSON.stringify(options.body) })
    })
    const text = await response.text()
    return { status: response.status, headers: response.headers, text, json: parsed(text) }
  }

  /** As the master key. */
  admin(method: string, path: string, body?: unknown): Promise<Reply> {
    return this.request(method, path, { token: masterKey, body })
  }

  /** Creates a key and returns its plaintext and id. Throws unless it was created. */
  async key(fields: Readonly<Record<string, unknown>> = {}): Promise<{ readonly key: string; readonly id: string }> {
    const reply = await this.admin("POST", "/key/generate", fields)
    if (reply.status !== 201) throw new Error(`/key/generate answered ${reply.status}: ${reply.text}`)
    const { key, key_id: id } = reply.json as { readonly key: string; readonly key_id: string }
    return { key, id }
  }

  /** Resolves when `/readyz` answers 200; throws when the process ends or a minute has passed. */
  async ready(): Promise<this> {
    const deadline = performance.now() + 60_000
    while (performance.now() < deadline) {
      if (this.child.exitCode !== null) throw new Error(`the gateway ended:\n${this.output}`)
      const response = await fetch(`${this.opsUrl}/readyz`).catch(() => undefined)
      if (response?.status === 200) return this
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
    throw new Error(`the gateway did not become ready:\n${this.output}`)
  }

  /** SIGTERM, then waits for the end; returns the exit code. */
  async stop(): Promise<number | null> {
    if (this.child.exitCode === null && this.child.signalCode === null) this.child.kill("SIGTERM")
    const code = await this.#exited
    if (this.#ownsDataDir) rmSync(this.dataDir, { recursive: true, force: true })
    return code
  }

  /** `kill -9` of the whole process group. */
  async kill(): Promise<void> {
    if (this.child.pid !== undefined) process.kill(-this.child.pid, "SIGKILL")
    await this.#exited
  }
}

/** Starts a gateway and waits until it is ready. */
export const startGateway = async (options: GatewayOptions = {}): Promise<Gateway> => {
  const port = await freePort()
  const opsPort = await freePort()
  const dataDir = options.dataDir ?? mkdtempSync(join(tmpdir(), "sluice-gateway-"))
  const child = spawn(process.execPath, startArguments, {
    cwd: root,
    // A group of its own, so that a test can kill all of it at once.
    detached: true,
    stdio: ["ignore", "pipe", "pipe"],
    env: {
      PATH: process.env["PATH"],
      NODE_COMPILE_CACHE: compileCache,
      GATEWAY_PORT: String(port),
      GATEWAY_OPS_PORT: String(opsPort),
      GATEWAY_DATA_DIR: dataDir,
      GATEWAY_MASTER_KEY: masterKey,
      GATEWAY_JWT_SECRET: jwtSecret,
      ...(options.databaseUrl === undefined ? {} : { DATABASE_URL: options.databaseUrl }),
      ...options.env
    }
  })
  return new Gateway(port, opsPort, dataDir, options.dataDir === undefined, child).ready()
}
