import type { Readable } from "node:stream"
import { Clock, Effect, Layer } from "effect"
import { buildConnector, type Client, type Dispatcher, errors } from "undici"
import { checkLiteral, EgressRefused, guardedLookup } from "#layers/inference/egress.ts"
import { ClientPool, type Slot, type Waiting } from "#layers/inference/ClientPool.ts"
import {
  Transport,
  type TransportControl,
  type TransportFailure,
  type TransportReceiver,
  type TransportShape
} from "#services/inference/Transport.ts"
import type { WireRequest } from "#services/inference/Wire.ts"

export interface TransportOptions {
  /** Whether loopback and private networks may be called. */
  readonly allowPrivate: boolean
  /** Connections per origin; further calls wait. */
  readonly connections: number
  /** Milliseconds for name, connection and TLS. */
  readonly connectTimeout: number
  /** Milliseconds after which the connections of an origin that nobody calls are closed. */
  readonly idleTimeout: number
}

export const defaultTransportOptions: TransportOptions = {
  allowPrivate: true,
  connections: 20_000,
  connectTimeout: 10_000,
  idleTimeout: 300_000
}

const guardedConnector = (options: TransportOptions): buildConnector.connector => {
  const connect = buildConnector({
    allowH2: false,
    timeout: options.connectTimeout,
    lookup: guardedLookup(options.allowPrivate)
  })
  return (target, callback) => {
    const refused = checkLiteral(target.hostname, options.allowPrivate)
    if (refused === undefined) connect(target, callback)
    // Not within the call: a receiver hears nothing before `send` has returned.
    else process.nextTick(callback, refused, null)
  }
}

const failureOf = (error: Error): TransportFailure => {
  if (error instanceof EgressRefused) {
    return { kind: "refused", message: "its address is not allowed" }
  }
  if (error instanceof errors.ConnectTimeoutError) return { kind: "broken", message: "connecting took too long" }
  if (error instanceof errors.HTTPParserError) return { kind: "broken", message: "it does not speak HTTP" }
  const code = "code" in error && typeof error.code === "string" ? error.code : ""
  switch (code) {
    case "ECONNREFUSED":
      return { kind: "broken", message: "the connection was refused" }
    case "ENOTFOUND":
    case "EAI_AGAIN":
      return { kind: "broken", message: "its name cannot be resolved" }
    case "UND_ERR_HEADERS_OVERFLOW":
      return { kind: "broken", message: "its headers are too large" }
    default:
      return code.startsWith("ERR_TLS") || code.includes("CERT")
        ? { kind: "broken", message: "its certificate is not trusted" }
        : { kind: "broken", message: "the connection broke" }
  }
}

const aborted = new Error("The call was given up")

/** One call on one connection: undici's handler and the caller's control in one object. */
class Exchange implements TransportControl, Waiting, Dispatcher.DispatchHandler {
  readonly #pool: ClientPool
  readonly #request: WireRequest
  readonly #receiver: TransportReceiver
  #slot: Slot | undefined
  #controller: Dispatcher.DispatchController | undefined
  #upload: Readable | undefined
  #done = false

  constructor(pool: ClientPool, request: WireRequest, receiver: TransportReceiver) {
    this.#pool = pool
    this.#request = request
    this.#receiver = receiver
  }

  run(slot: Slot): void {
    this.#slot = slot
    const { body, headers, method, path, upload } = this.#request
    try {
      if (upload === undefined) {
        slot.client.dispatch({ path, method, headers: headers as Record<string, string>, body }, this)
        return
      }
      this.#upload = upload.open()
      // A file that cannot be read any more breaks the request, and that is what the receiver hears of it.
      this.#upload.on("error", () => undefined)
      slot.client.dispatch(
        { path, method, headers: { ...headers, "content-length": String(upload.length) }, body: this.#upload },
        this
      )
    } catch (error) {
      queueMicrotask(() => this.onResponseError(undefined, error instanceof Error ? error : new Error("unusable")))
    }
  }

  pause(): void {
    if (!this.#done) this.#controller?.pause()
  }

  resume(): void {
    if (!this.#done) this.#controller?.resume()
  }

  abort(): void {
    if (this.#done) return
    this.#done = true
    this.#upload?.destroy()
    const slot = this.#slot
    if (slot === undefined) return this.#pool.forget(this)
    if (this.#controller === undefined) slot.dead = true
    else this.#controller.abort(aborted)
    this.#pool.release(slot, true)
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller
    if (this.#done) controller.abort(aborted)
  }

  onResponseStart(
    _controller: Dispatcher.DispatchController,
    status: number,
    headers: Record<string, string | string[] | undefined>
  ): void {
    if (!this.#done && status >= 200) this.#receiver.head(status, headers)
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (!this.#done) this.#receiver.data(chunk)
  }

  onResponseEnd(): void {
    if (this.#done) return
    this.#done = true
    // An upstream may answer before it has read everything: what is still on its way would meet the next call.
    const unsent = this.#upload !== undefined && !this.#upload.readableEnded
    this.#upload?.destroy()
    if (this.#slot !== undefined) this.#pool.release(this.#slot, unsent)
    this.#receiver.end()
  }

  onResponseError(_controller: unknown, error: Error): void {
    if (this.#done) return
    this.#done = true
    this.#upload?.destroy()
    if (this.#slot !== undefined) this.#pool.release(this.#slot, true)
    this.#receiver.failed(failureOf(error))
  }
}

/** A transport over undici, and how to end it. `now` is in milliseconds. */
export const makeTransport = (
  options: TransportOptions,
  now: () => number
): TransportShape & { readonly sweep: () => void; readonly destroy: () => void; readonly origins: () => number } => {
  const pools = new Map<string, ClientPool>()
  const connect = guardedConnector(options)
  const clientOptions: Client.Options = {
    connect,
    allowH2: false,
    // The caller's deadlines rule; undici's would only add timers.
    headersTimeout: 0,
    bodyTimeout: 0,
    keepAliveTimeout: 30_000,
    keepAliveMaxTimeout: 300_000
  }
  return {
    send: (origin, request, receiver) => {
      let pool = pools.get(origin)
      if (pool === undefined) {
        pool = new ClientPool(origin, options.connections, clientOptions)
        pools.set(origin, pool)
      }
      pool.lastUsed = now()
      const exchange = new Exchange(pool, request, receiver)
      pool.acquire(exchange)
      return exchange
    },
    sweep: () => {
      for (const [origin, pool] of pools) {
        if (pool.inUse > 0 || now() - pool.lastUsed < options.idleTimeout) continue
        pools.delete(origin)
        pool.destroy()
      }
    },
    destroy: () => {
      for (const pool of pools.values()) pool.destroy()
      pools.clear()
    },
    origins: () => pools.size
  }
}

/** Upstream calls over undici clients, HTTP/1.1, one pool an origin. */
export const transportUndici = (options: Partial<TransportOptions> = {}): Layer.Layer<Transport> =>
  Layer.effect(
    Transport,
    Effect.gen(function* () {
      const clock = yield* Clock.Clock
      const transport = yield* Effect.acquireRelease(
        Effect.sync(() =>
          makeTransport({ ...defaultTransportOptions, ...options }, () => clock.currentTimeMillisUnsafe())
        ),
        (transport) => Effect.sync(() => transport.destroy())
      )
      yield* Effect.sync(() => transport.sweep()).pipe(Effect.delay("30 seconds"), Effect.forever, Effect.forkScoped)
      return transport
    })
  )
