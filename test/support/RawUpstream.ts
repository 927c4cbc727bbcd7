/** An upstream that says exactly the bytes it is told to say and breaks where it is told to break, on any wire. */
import { type AddressInfo, createServer, type Server, type Socket } from "node:net"

/**
 * What a connection does next: bytes are written, a number is waited for (milliseconds), `reset` and `close` end it,
 * `hang` says nothing more. After the last step it is there for the next request.
 */
export type Step = Buffer | number | "reset" | "close" | "hang"

/** One answer, step by step. */
export type Script = ReadonlyArray<Step>

/** A request read whole; `left`: the client closed the connection first; `cut`: the upstream did. */
export interface RawRequest {
  readonly name: string
  readonly path: string
  readonly body: string
  outcome: "open" | "answered" | "left" | "cut"
}

/** Each name has a port of its own, so that a connection that one breaks is never another's. */
export class RawUpstream {
  readonly requests: Array<RawRequest> = []
  readonly #scripts = new Map<string, Array<Script>>()
  readonly #servers = new Map<string, Server>()
  readonly #sockets = new Set<Socket>()

  /** One answer a request, the last one for good. */
  async script(name: string, answers: ReadonlyArray<Script>): Promise<void> {
    this.#scripts.set(name, [...answers])
    const server = createServer((socket) => this.#accept(name, socket))
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
    this.#servers.set(name, server)
  }

  /** Where a name that has a script is served, without a trailing slash. */
  baseOf(name: string): string {
    return `http://127.0.0.1:${(this.#servers.get(name)!.address() as AddressInfo).port}`
  }

  of(name: string): ReadonlyArray<RawRequest> {
    return this.requests.filter((request) => request.name === name)
  }

  /** Client connections that stand now. */
  get openSockets(): number {
    return this.#sockets.size
  }

  stop(): void {
    for (const server of this.#servers.values()) server.close()
    for (const socket of this.#sockets) socket.destroy()
  }

  #accept(name: string, socket: Socket): void {
    this.#sockets.add(socket)
    socket.setNoDelay(true)
    socket.on("error", () => socket.destroy())
    let running: RawRequest | undefined
    socket.on("close", () => {
      this.#sockets.delete(socket)
      if (running?.outcome === "open") running.outcome = "left"
    })
    let read = Buffer.alloc(0)
    socket.on("data", (chunk: Buffer) => {
      read = Buffer.concat([read, chunk])
      const end = read.indexOf("\r\n\r\n")
      if (end === -1) return
      const head = read.toString("latin1", 0, end)
      const length = Number(/^content-length: *(\d+)/im.exec(head)?.[1] ?? 0)
      if (read.length < end + 4 + length) return
      const path = head.split(" ", 2)[1] ?? "/"
      const body = read.toString("utf8", end + 4, end + 4 + length)
      read = read.subarray(end + 4 + length)
      running = { name, path, body, outcome: "open" }
      this.requests.push(running)
      void this.#play(socket, running)
    })
  }

  async #play(socket: Socket, request: RawRequest): Promise<void> {
    const answers = this.#scripts.get(request.name) ?? []
    const script = (answers.length > 1 ? answers.shift() : answers[0]) ?? ["reset"]
    for (const step of script) {
      if (socket.destroyed || step === "hang") return
      if (typeof step === "number") await new Promise((resolve) => setTimeout(resolve, step))
      else if (Buffer.isBuffer(step)) socket.write(step)
      else {
        // What was written has to arrive before the reset, which would throw it away.
        await new Promise((resolve) => setTimeout(resolve, 20))
        if (socket.destroyed) return
        request.outcome = "cut"
        if (step === "reset") socket.resetAndDestroy()
        else socket.end()
        return
      }
    }
    if (!socket.destroyed) request.outcome = "answered"
  }
}

/** The head of an answer, its blank line included. */
export const head = (status: number, headers: Readonly<Record<string, string | number>>): Buffer =>
  Buffer.from(
    [`HTTP/1.1 ${status} Status`, ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`), "", ""].join(
      "\r\n"
    )
  )

/** A whole JSON answer. */
export const whole = (body: string, status = 200, headers: Readonly<Record<string, string | number>> = {}): Buffer => {
  const bytes = Buffer.from(body)
  return Buffer.concat([
    head(status, { "content-type": "application/json", "content-length": bytes.length, ...headers }),
    bytes
  ])
}

/** Bytes in HTTP's chunked coding. */
export const chunk = (bytes: Buffer): Buffer =>
  Buffer.concat([Buffer.from(`${bytes.length.toString(16)}\r\n`), bytes, Buffer.from("\r\n")])

/** The end of a chunked body. */
export const lastChunk = Buffer.from("0\r\n\r\n")
