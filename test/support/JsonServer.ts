import { createServer, type IncomingHttpHeaders, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"

export interface JsonRequest {
  readonly path: string
  readonly headers: IncomingHttpHeaders
  readonly text: string
  readonly json: Readonly<Record<string, unknown>>
}

type Answer = (request: JsonRequest, response: ServerResponse) => unknown

/** A server on loopback that answers each request with what `answer` returns, as JSON; undefined: it answers itself. */
export class JsonServer {
  readonly requests: Array<JsonRequest> = []
  answer: Answer
  readonly #server = createServer((request, response) => {
    const chunks: Array<Buffer> = []
    request.on("data", (chunk: Buffer) => void chunks.push(chunk))
    request.on("end", () => {
      const text = Buffer.concat(chunks).toString("utf8")
      const received = {
        path: request.url ?? "",
        headers: request.headers,
        text,
        json: JSON.parse(text) as Readonly<Record<string, unknown>>
      }
      this.requests.push(received)
      const body = this.answer(received, response)
      if (body === undefined) return
      response.writeHead(200, { "content-type": "application/json" })
      response.end(typeof body === "string" ? body : JSON.stringify(body))
    })
  })

  private constructor(answer: Answer) {
    this.answer = answer
  }

  static start(answer: Answer): Promise<JsonServer> {
    const server = new JsonServer(answer)
    return new Promise((resolve) => server.#server.listen(0, "127.0.0.1", () => resolve(server)))
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  /** Connections that are open now. */
  get connections(): Promise<number> {
    return new Promise((resolve) => this.#server.getConnections((_, count) => resolve(count)))
  }

  stop(): Promise<void> {
    this.#server.closeAllConnections()
    return new Promise((resolve) => this.#server.close(() => resolve()))
  }
}
