import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from "node:http"
import type { AddressInfo, Socket } from "node:net"
import { Effect, type Scope } from "effect"
import {
  chatAnswer,
  completionAnswer,
  embeddingsAnswer,
  errorAnswer,
  modelsAnswer,
  streamPayloads
} from "#test/support/openai-answers.ts"
import { behaviourOf, type Behaviour } from "#test/support/stub-behaviour.ts"

export type { Behaviour, Fault } from "#test/support/stub-behaviour.ts"

/** A request the stub has read to its end, and what became of the answer. */
export interface ReceivedRequest {
  readonly method: string
  readonly path: string
  readonly headers: IncomingHttpHeaders
  readonly body: string
  /** The body as JSON; undefined when it is none. */
  readonly json: unknown
  readonly model: string
  /**
   * `open`: not finished yet; `answered`: sent whole; `aborted`: the client went away first; `broken`: the stub itself
   * cut the connection.
   */
  readonly outcome: "open" | "answered" | "aborted" | "broken"
  /** SSE events handed to the socket. */
  readonly events: number
}

export interface StubOptions {
  /** Port on 127.0.0.1; 0 (the default) takes a free one. */
  readonly port?: number
  /** Keep the requests (the default). Off for load. The last 10,000 are kept. */
  readonly record?: boolean
}

const keptRequests = 10_000
const largestBody = 64 * 1024 * 1024
const json = "application/json"
const routes: ReadonlySet<string> = new Set(["completions", "embeddings", "models"])

interface Latest {
  readonly bytes: Buffer
  readonly body: string
  readonly content: unknown
}

type Mutable<A> = { -readonly [Key in keyof A]: A[Key] }
type Call = Mutable<ReceivedRequest>

const field = (value: unknown, name: string): unknown =>
  typeof value === "object" && value !== null ? (value as Record<string, unknown>)[name] : undefined

const parse = (body: string): unknown => {
  try {
    return JSON.parse(body)
  } catch {
    return undefined
  }
}

/** Splits bytes within their first character of several bytes; whole when there is none. */
const cutInCharacter = (bytes: Buffer): ReadonlyArray<Buffer> => {
  const wide = bytes.findIndex((byte) => byte >= 0xc0)
  return wide === -1 ? [bytes] : [bytes.subarray(0, wide + 1), bytes.subarray(wide + 1)]
}

/** One SSE event for a payload, in the line discipline of the behaviour. */
const frame = (payload: string, behaviour: Behaviour, index: number): Buffer => {
  const newline = behaviour.crlf ? "\r\n" : "\n"
  const comment = behaviour.comments ? `: keep-alive ${index}${newline}${newline}` : ""
  const lines = behaviour.multiline && payload.startsWith("{") ? payload.split(/(?<=,)(?="choices")/) : [payload]
  return Buffer.from(`${comment}${lines.map((line) => `data: ${line}${newline}`).join("")}${newline}`)
}

/**
 * An OpenAI-compatible upstream on loopback whose health is in the test's hands: chat completions, completions,
 * embeddings and models. How a request is answered is said by `script` (in the same process) or by the model name
 * (`behaviourOf`, from any process). It remembers what it received, and which calls their client gave up.
 */
export class StubUpstream {
  readonly requests: Array<ReceivedRequest> = []
  readonly #server = createServer((request, response) => this.#receive(request, response))
  readonly #sockets = new Set<Socket>()
  readonly #scripts = new Map<string, Array<Behaviour>>()
  readonly #parsed = new Map<string, Behaviour>()
  readonly #answers = new Map<string, Buffer>()
  readonly #streams = new Map<string, ReadonlyArray<Buffer>>()
  readonly #watchers = new Set<() => void>()
  readonly #record: boolean
  #latest: Latest | undefined
  #received = 0
  #aborted = 0
  #open = 0

  private constructor(options: StubOptions) {
    this.#record = options.record ?? true
    this.#server.keepAliveTimeout = 60_000
    this.#server.on("connection", (socket) => {
      this.#sockets.add(socket)
      socket.setNoDelay(true)
      socket.on("error", () => socket.destroy())
      socket.on("close", () => {
        this.#sockets.delete(socket)
        this.#changed()
      })
    })
  }

  /** Listens on loopback. */
  static start(options: StubOptions = {}): Promise<StubUpstream> {
    const stub = new StubUpstream(options)
    return new Promise((resolve, reject) => {
      stub.#server.once("error", reject)
      stub.#server.listen({ port: options.port ?? 0, host: "127.0.0.1", backlog: 4096 }, () => resolve(stub))
    })
  }

  /** A stub that ends with the scope. */
  static readonly scoped = (options: StubOptions = {}): Effect.Effect<StubUpstream, never, Scope.Scope> =>
    Effect.acquireRelease(
      Effect.promise(() => StubUpstream.start(options)),
      (stub) => Effect.promise(() => stub.stop())
    )

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  /** The `api_base` of this upstream, `/v1` included. */
  get url(): string {
    return `http://127.0.0.1:${this.port}/v1`
  }

  /** Requests read so far. */
  get received(): number {
    return this.#received
  }

  /** Calls whose client went away before the answer was complete. */
  get aborted(): number {
    return this.#aborted
  }

  /** Calls that are being answered now. */
  get open(): number {
    return this.#open
  }

  /** Client connections that stand now. */
  get openSockets(): number {
    return this.#sockets.size
  }

  /**
   * Says how the next requests for a model are answered: one behaviour a request, the last one for good. Without a
   * behaviour the model is healthy again. `*` stands for models without a script of their own.
   */
  script(model: string, ...behaviours: ReadonlyArray<Behaviour>): void {
    if (behaviours.length === 0) this.#scripts.delete(model)
    else this.#scripts.set(model, [...behaviours])
  }

  /** Resolves when the condition holds (asked again whenever something happened); fails after `timeout` ms (5000). */
  until(condition: (stub: StubUpstream) => boolean, timeout = 5_000): Promise<void> {
    if (condition(this)) return Promise.resolve()
    return new Promise((resolve, reject) => {
      const end = () => {
        clearTimeout(timer)
        this.#watchers.delete(watch)
      }
      const watch = () => {
        if (!condition(this)) return
        end()
        resolve()
      }
      const timer = setTimeout(() => {
        end()
        const counts = `${this.#received} received, ${this.#open} open, ${this.#aborted} aborted`
        reject(new Error(`The stub waited ${timeout} ms in vain for ${condition.toString()} (${counts})`))
      }, timeout)
      this.#watchers.add(watch)
    })
  }

  /** Forgets requests, counts and scripts; connections stay. */
  reset(): void {
    this.requests.length = 0
    this.#received = 0
    this.#aborted = 0
    this.#scripts.clear()
  }

  /** Breaks all connections at once, as an upstream that was restarted; it goes on listening. */
  dropConnections(): void {
    for (const socket of this.#sockets) socket.resetAndDestroy()
  }

  /** Stops listening and closes what is open. */
  stop(): Promise<void> {
    return new Promise((resolve) => {
      this.#server.close(() => resolve())
      for (const socket of this.#sockets) socket.destroy()
    })
  }

  #changed(): void {
    for (const watch of this.#watchers) watch()
  }

  #receive(request: IncomingMessage, response: ServerResponse): void {
    const parts: Array<Buffer> = []
    let size = 0
    request.on("data", (part: Buffer) => {
      size += part.length
      if (size > largestBody) request.destroy()
      else parts.push(part)
    })
    request.on("end", () => {
      const { body, content } = this.#read(parts.length === 1 ? parts[0]! : Buffer.concat(parts))
      const model = field(content, "model")
      const call: Call = {
        method: request.method ?? "GET",
        path: request.url ?? "/",
        headers: this.#record ? request.headers : {},
        body,
        json: content,
        model: typeof model === "string" ? model : "",
        outcome: "open",
        events: 0
      }
      this.#received += 1
      this.#open += 1
      if (this.#record) {
        if (this.requests.length >= keptRequests) this.requests.shift()
        this.requests.push(call)
      }
      response.on("close", () => this.#closed(call, response))
      this.#changed()
      this.#dispatch(call, response)
    })
  }

  /** A load generator sends the same body again and again: it is parsed once. */
  #read(bytes: Buffer): Latest {
    if (this.#latest?.bytes.equals(bytes) === true) return this.#latest
    const body = bytes.toString("utf8")
    this.#latest = { bytes, body, content: parse(body) }
    return this.#latest
  }

  #closed(call: Call, response: ServerResponse): void {
    if (response.writableFinished && call.outcome === "open") call.outcome = "answered"
    if (call.outcome === "open") {
      call.outcome = "aborted"
      this.#aborted += 1
    }
    this.#open -= 1
    this.#changed()
  }

  #behaviour(model: string): Behaviour {
    const script = this.#scripts.get(model) ?? this.#scripts.get("*")
    if (script !== undefined) return (script.length > 1 ? script.shift() : script[0]) ?? {}
    const known = this.#parsed.get(model)
    if (known !== undefined) return known
    const behaviour = behaviourOf(model)
    if (this.#parsed.size < 1_000) this.#parsed.set(model, behaviour)
    return behaviour
  }

  #dispatch(call: Call, response: ServerResponse): void {
    let behaviour: Behaviour
    try {
      behaviour = this.#behaviour(call.model)
    } catch (error) {
      response.writeHead(400, { "content-type": json })
      response.end(JSON.stringify({ error: { message: String(error), type: "invalid_request_error" } }))
      return
    }
    if (behaviour.gate === undefined && behaviour.headerDelay === undefined)
      return this.#answer(call, response, behaviour)
    void Promise.resolve(behaviour.gate)
      .then(() => pause(behaviour.headerDelay ?? 0, response))
      .then(() => this.#answer(call, response, behaviour))
  }

  #answer(call: Call, response: ServerResponse, behaviour: Behaviour): void {
    if (response.destroyed) return
    if (behaviour.fault === "hang") return
    if (behaviour.fault === "reset") return this.#break(call, response)
    if (behaviour.fault === "garbage") {
      response.socket?.write("this is not HTTP\r\n\r\n")
      call.outcome = "broken"
      response.socket?.end()
      return
    }
    const path = call.path.split("?", 1)[0] ?? ""
    const kind = path.slice(path.lastIndexOf("/") + 1)
    const status = behaviour.status ?? (routes.has(kind) ? 200 : 404)
    const legacy = !path.endsWith("/chat/completions")
    if (status < 400 && kind === "completions" && field(call.json, "stream") === true && behaviour.body === undefined) {
      void this.#stream(call, response, behaviour, legacy)
      return
    }
    void this.#whole(call, response, behaviour, status, this.#body(call, behaviour, status, kind, legacy))
  }

  #body(call: Call, behaviour: Behaviour, status: number, kind: string, legacy: boolean): Buffer {
    if (behaviour.body !== undefined) return Buffer.from(behaviour.body)
    if (status >= 400) return Buffer.from(errorAnswer(status))
    switch (kind) {
      case "completions": {
        const key = `${legacy} ${call.model}`
        const known = this.#answers.get(key)
        if (known !== undefined) return known
        const made = Buffer.from(legacy ? completionAnswer(call.model) : chatAnswer(call.model))
        if (this.#answers.size < 1_000) this.#answers.set(key, made)
        return made
      }
      case "embeddings":
        return Buffer.from(embeddingsAnswer(call.model, field(call.json, "input"), field(call.json, "encoding_format")))
      default:
        return Buffer.from(modelsAnswer())
    }
  }

  async #whole(
    call: Call,
    response: ServerResponse,
    behaviour: Behaviour,
    status: number,
    body: Buffer
  ): Promise<void> {
    const { fault, bodyDelay } = behaviour
    const sent = fault === "invalid-json" ? body.subarray(0, body.length - 20) : body
    const wrong = fault === "short-length" ? -10 : fault === "long-length" ? 10 : 0
    response.writeHead(status, {
      "content-type": json,
      "content-length": sent.length + wrong,
      ...(behaviour.retryAfter === undefined ? {} : { "retry-after": behaviour.retryAfter }),
      ...behaviour.headers
    })
    if (wrong !== 0) {
      response.write(sent)
      call.outcome = "broken"
      response.socket?.end()
      return
    }
    if (bodyDelay === undefined && fault !== "hang-body" && fault !== "reset-body") {
      // as a string it leaves in one write with the head, which costs half of two buffers
      response.end(sent.toString("latin1"), "latin1")
      return
    }
    response.write(sent.subarray(0, sent.length >> 1))
    if (fault === "hang-body") return
    await pause(bodyDelay ?? 5, response)
    if (fault === "reset-body") this.#break(call, response)
    else response.end(sent.subarray(sent.length >> 1))
  }

  #events(call: Call, behaviour: Behaviour, legacy: boolean): ReadonlyArray<Buffer> {
    const asked = field(field(call.json, "stream_options"), "include_usage") === true
    const usage = behaviour.usage === "always" || (behaviour.usage !== "never" && asked)
    const plain =
      behaviour.crlf || behaviour.comments || behaviour.multiline || behaviour.splitUtf8 ? undefined : call.model
    const chunks = behaviour.chunks ?? 5
    const key = `${legacy} ${usage} ${chunks} ${plain}`
    const known = plain === undefined ? undefined : this.#streams.get(key)
    if (known !== undefined) return known
    const wide = behaviour.splitUtf8 === true
    const events = [...streamPayloads(call.model, { legacy, chunks, wide, usage }), "[DONE]"].map((payload, index) =>
      frame(payload, behaviour, index)
    )
    if (plain !== undefined && this.#streams.size < 100) this.#streams.set(key, events)
    return events
  }

  async #stream(call: Call, response: ServerResponse, behaviour: Behaviour, legacy: boolean): Promise<void> {
    const events = this.#events(call, behaviour, legacy)
    const { fault, delay = 0 } = behaviour
    const faultAt = events.length >> 1
    response.writeHead(200, {
      "content-type": "text/event-stream; charset=utf-8",
      "cache-control": "no-cache",
      ...behaviour.headers
    })
    response.flushHeaders()
    for (const [index, event] of events.entries()) {
      if (behaviour.beforeEvent !== undefined) await behaviour.beforeEvent(index)
      else if (index > 0) await (delay > 0 ? pause(delay, response) : turn())
      if (response.destroyed) return
      if (index === faultAt) {
        if (fault === "reset-body") return this.#break(call, response)
        if (fault === "hang-body") return
        if (fault === "end-body") return void response.end()
        if (fault === "error-frame") return void response.end(frame(errorAnswer(500), behaviour, index))
        if (fault === "invalid-json") response.write('data: {"id":"chatcmpl-stub","choi\n\n')
      }
      call.events += 1
      if (behaviour.splitUtf8) {
        for (const part of cutInCharacter(event)) {
          response.write(part)
          await pause(2, response)
        }
      } else if (!response.write(event)) await drained(response)
      if (this.#watchers.size > 0) this.#changed()
    }
    response.end()
  }

  #break(call: Call, response: ServerResponse): void {
    call.outcome = "broken"
    response.socket?.resetAndDestroy()
  }
}

/** Waits, at most until the client has gone. */
const pause = (ms: number, response: ServerResponse): Promise<void> =>
  new Promise((resolve) => {
    if (ms <= 0 || response.destroyed) return resolve()
    const end = () => {
      clearTimeout(timer)
      response.off("close", end)
      resolve()
    }
    const timer = setTimeout(end, ms)
    response.on("close", end)
  })

const turn = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve))

const drained = (response: ServerResponse): Promise<void> =>
  new Promise((resolve) => {
    const end = () => {
      response.off("drain", end)
      response.off("close", end)
      resolve()
    }
    response.on("drain", end)
    response.on("close", end)
  })
