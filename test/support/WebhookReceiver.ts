/** A receiver of callbacks on loopback that remembers what it was sent. */
import { createServer, type IncomingHttpHeaders, type Server } from "node:http"
import type { AddressInfo } from "node:net"

export interface ReceivedWebhook {
  readonly path: string
  readonly headers: IncomingHttpHeaders
  readonly body: string
}

/** What the receiver answers; `hang` never does. */
export type Answer = number | "hang" | { readonly status: number; readonly headers: Record<string, string> }

export class WebhookReceiver {
  readonly received: Array<ReceivedWebhook> = []
  readonly url: string
  answer: (webhook: ReceivedWebhook) => Answer = () => 204
  readonly #server: Server
  #waiting: Array<{ readonly count: number; readonly resolve: () => void }> = []

  constructor(server: Server) {
    this.#server = server
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    server.on("request", (request, response) => {
      let body = ""
      request.setEncoding("utf8")
      request.on("data", (chunk: string) => void (body += chunk))
      request.on("end", () => {
        const webhook = { path: request.url ?? "", headers: request.headers, body }
        const answer = this.answer(webhook)
        this.received.push(webhook)
        if (answer !== "hang") {
          const { headers, status } = typeof answer === "number" ? { headers: {}, status: answer } : answer
          response.writeHead(status, headers).end()
        }
        this.#waiting = this.#waiting.filter(({ count, resolve }) => {
          if (this.received.length < count) return true
          resolve()
          return false
        })
      })
    })
  }

  static start(): Promise<WebhookReceiver> {
    const server = createServer()
    return new Promise((resolve) => {
      server.listen(0, "127.0.0.1", () => resolve(new WebhookReceiver(server)))
    })
  }

  /** Resolves when so many have come in all. */
  atLeast(count: number): Promise<void> {
    if (this.received.length >= count) return Promise.resolve()
    return new Promise((resolve) => this.#waiting.push({ count, resolve }))
  }

  stop(): Promise<void> {
    this.#server.closeAllConnections()
    return new Promise((resolve) => this.#server.close(() => resolve()))
  }
}
