/**
 * The upper bound: the least that a Node process must do to forward a call. node:http in front, an undici pool behind,
 * bytes passed on as they come, nothing read, nobody asked. Usage: bare-proxy.ts <port> <upstream origin>
 */
import { createServer, type IncomingHttpHeaders, type ServerResponse } from "node:http"
import { Pool, type Dispatcher } from "undici"

const [port, origin] = process.argv.slice(2)
const pool = new Pool(origin ?? "", { connections: 4_096, pipelining: 1, headersTimeout: 30_000, bodyTimeout: 0 })

const hopByHop = new Set(["connection", "keep-alive", "transfer-encoding", "content-length", "host", "date"])

const forwarded = (headers: IncomingHttpHeaders): Record<string, string | Array<string>> => {
  const kept: Record<string, string | Array<string>> = {}
  for (const name in headers) {
    const value = headers[name]
    if (value !== undefined && !hopByHop.has(name)) kept[name] = value
  }
  return kept
}

class Forward implements Dispatcher.DispatchHandler {
  readonly #response: ServerResponse
  #controller: Dispatcher.DispatchController | undefined
  #length = -1

  constructor(response: ServerResponse) {
    this.#response = response
    response.on("close", () => {
      if (!response.writableFinished) this.#controller?.abort(new Error("The client went away."))
    })
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller
  }

  onResponseStart(_: Dispatcher.DispatchController, status: number, headers: IncomingHttpHeaders): void {
    const kept = forwarded(headers)
    const length = headers["content-length"]
    if (length !== undefined) {
      this.#length = Number(length)
      kept["content-length"] = length
    }
    this.#response.writeHead(status, kept)
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (chunk.length === this.#length) {
      // the whole body at once, as a string: it leaves in one write with the head, cheaper than two buffers
      this.#response.end(chunk.toString("latin1"), "latin1")
      return
    }
    if (this.#response.write(chunk)) return
    controller.pause()
    this.#response.once("drain", () => controller.resume())
  }

  onResponseEnd(): void {
    if (!this.#response.writableEnded) this.#response.end()
  }

  onResponseError(): void {
    if (this.#response.headersSent) this.#response.destroy()
    else this.#response.writeHead(502).end()
  }
}

const server = createServer((request, response) => {
  const parts: Array<Buffer> = []
  request.on("data", (part: Buffer) => parts.push(part))
  request.on("end", () => {
    const body = parts.length === 1 ? parts[0]! : Buffer.concat(parts)
    const method = (request.method ?? "GET") as Dispatcher.HttpMethod
    const options = { method, path: request.url ?? "/", headers: forwarded(request.headers) }
    pool.dispatch(parts.length === 0 ? options : { ...options, body }, new Forward(response))
  })
})
server.keepAliveTimeout = 60_000
server.listen({ port: Number(port), host: "127.0.0.1", backlog: 4_096 })
process.on("SIGTERM", () => process.exit(0))
