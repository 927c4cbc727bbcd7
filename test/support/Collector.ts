/** An OTLP collector: takes what exporters send over HTTP as JSON, and shows it. */
import { createServer, type Server } from "node:http"
import type { AddressInfo } from "node:net"

export interface Attribute {
  readonly key: string
  readonly value: {
    readonly stringValue?: string
    readonly intValue?: unknown
    readonly doubleValue?: number
    readonly boolValue?: boolean
  }
}

export interface Received {
  readonly path: string
  readonly authorization: string | undefined
  readonly text: string
}

type Attributes = Readonly<Record<string, unknown>>

export interface ReceivedSpan {
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId: string | undefined
  readonly traceState: string | undefined
  readonly name: string
  /** `internal`, `server` or `client`. */
  readonly kind: string
  /** Milliseconds. */
  readonly start: number
  readonly end: number
  readonly failed: boolean
  readonly attributes: Attributes
  readonly events: ReadonlyArray<{ readonly name: string; readonly attributes: Attributes }>
}

interface WireSpan extends Omit<ReceivedSpan, "kind" | "attributes" | "events"> {
  readonly kind: number
  readonly startTimeUnixNano: string
  readonly endTimeUnixNano: string
  readonly status: { readonly code: number }
  readonly attributes: ReadonlyArray<Attribute>
  readonly events: ReadonlyArray<{ readonly name: string; readonly attributes: ReadonlyArray<Attribute> }>
}

interface Traces {
  readonly resourceSpans: ReadonlyArray<{
    readonly resource: { readonly attributes: ReadonlyArray<Attribute> }
    readonly scopeSpans: ReadonlyArray<{ readonly spans: ReadonlyArray<WireSpan> }>
  }>
}

export const named = (attributes: ReadonlyArray<Attribute>): Attributes =>
  Object.fromEntries(
    attributes.map(({ key, value }) => [
      key,
      value.stringValue ?? value.doubleValue ?? value.boolValue ?? Number(value.intValue)
    ])
  )

const kinds = ["unspecified", "internal", "server", "client"]

const spanOf = ({ endTimeUnixNano, kind, startTimeUnixNano, status, ...span }: WireSpan): ReceivedSpan => ({
  ...span,
  kind: kinds[kind] ?? "",
  start: Number(BigInt(startTimeUnixNano) / 1000n) / 1000,
  end: Number(BigInt(endTimeUnixNano) / 1000n) / 1000,
  failed: status.code === 2,
  attributes: named(span.attributes),
  events: span.events.map(({ attributes, name }) => ({ name, attributes: named(attributes) }))
})

export class Collector {
  readonly received: Array<Received> = []
  readonly #server: Server

  private constructor() {
    this.#server = createServer((request, response) => {
      let text = ""
      request.setEncoding("utf8")
      request.on("data", (chunk: string) => void (text += chunk))
      request.on("end", () => {
        this.received.push({ path: request.url ?? "", authorization: request.headers.authorization, text })
        response.writeHead(200, { "content-type": "application/json" }).end("{}")
      })
    })
  }

  static async start(): Promise<Collector> {
    const collector = new Collector()
    await new Promise<void>((resolve) => collector.#server.listen(0, "127.0.0.1", resolve))
    return collector
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  stop(): void {
    this.#server.close()
    this.#server.closeAllConnections()
  }

  /** The bodies sent to a path. */
  sent<A>(path: string): ReadonlyArray<A> {
    return this.received.filter((one) => one.path === path).map(({ text }) => JSON.parse(text) as A)
  }

  /** Attributes of whoever sent spans. */
  resources(): ReadonlyArray<Attributes> {
    return this.sent<Traces>("/v1/traces").flatMap(({ resourceSpans }) =>
      resourceSpans.map(({ resource }) => named(resource.attributes))
    )
  }

  /** All spans so far; those of one trace where its id is given. */
  spans(traceId?: string): ReadonlyArray<ReceivedSpan> {
    return this.sent<Traces>("/v1/traces")
      .flatMap(({ resourceSpans }) =>
        resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap(({ spans }) => spans.map(spanOf)))
      )
      .filter((span) => traceId === undefined || span.traceId === traceId)
  }
}
