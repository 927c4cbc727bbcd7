/** Upstreams of a provider's own shape on loopback: what they received, byte for byte, and what they answer. */
import { createServer, type IncomingHttpHeaders, type Server, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"

export interface NativeRequest {
  readonly path: string
  readonly headers: IncomingHttpHeaders
  readonly text: string
  readonly json: Readonly<Record<string, unknown>>
}

export type NativeAnswer = (request: NativeRequest, response: ServerResponse) => void | Promise<void>

export class NativeStub {
  readonly requests: Array<NativeRequest> = []
  /** Replaces the usual answer of the next requests; undefined: the usual one. */
  answer: NativeAnswer | undefined
  readonly #server: Server

  private constructor(usual: NativeAnswer) {
    this.#server = createServer((request, response) => {
      const parts: Array<Buffer> = []
      request.on("data", (part: Buffer) => parts.push(part))
      request.on("end", () => {
        const text = Buffer.concat(parts).toString()
        const received = {
          path: request.url ?? "/",
          headers: request.headers,
          text,
          json: JSON.parse(text || "{}") as NativeRequest["json"]
        }
        this.requests.push(received)
        void (this.answer ?? usual)(received, response)
      })
    })
  }

  static start(usual: NativeAnswer): Promise<NativeStub> {
    const stub = new NativeStub(usual)
    return new Promise((resolve) => stub.#server.listen(0, "127.0.0.1", () => resolve(stub)))
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  get last(): NativeRequest {
    return this.requests.at(-1)!
  }

  stop(): Promise<void> {
    return new Promise((resolve) => {
      this.#server.close(() => resolve())
      this.#server.closeAllConnections()
    })
  }
}

export const answerJson = (response: ServerResponse, body: unknown, status = 200, headers = {}): void => {
  response.writeHead(status, { "content-type": "application/json", ...headers })
  response.end(JSON.stringify(body))
}

/** Events as the provider writes them, one write each. */
export const answerEvents = async (response: ServerResponse, events: ReadonlyArray<string>): Promise<void> => {
  response.writeHead(200, { "content-type": "text/event-stream; charset=utf-8" })
  for (const event of events) {
    response.write(event)
    await new Promise((resolve) => setImmediate(resolve))
  }
  response.end()
}
