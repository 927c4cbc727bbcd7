/** A Node listener in front of the hot path and the router, which drains when its scope closes. */
import { createServer, type IncomingMessage, type RequestListener, type Server, type ServerResponse } from "node:http"
import type { Server as TlsServer } from "node:https"
import type { Duplex } from "node:stream"
import { Data, Deferred, type Duration, Effect, type Scope } from "effect"
import { envelopeOf, Unavailable } from "#domain/errors.ts"
import { malformedJson } from "#http/failures.ts"
import { answerFailure } from "#http/node-answers.ts"

export interface ListenerOptions {
  readonly host: string
  readonly port: number
  /** How long running requests may take to finish after the listener has closed. */
  readonly drainTimeout: Duration.Duration
}

/** The listener cannot be opened; the message names the address. */
export class ListenFailed extends Data.TaggedError("ListenFailed")<{ readonly message: string }> {}

/** How long a client may take to send its headers. */
const headersTimeoutMillis = 15_000

const draining = new Unavailable({
  code: "draining",
  message: "The gateway is shutting down.",
  retryAfter: 1
})

const rawAnswer = (status: string, body: string): string =>
  `HTTP/1.1 ${status}\r\nConnection: close\r\nContent-Type: application/json\r\n` +
  `Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`

/** A request that is no HTTP gets the envelope too, as far as its socket still takes one. */
const answerBrokenRequest = (error: NodeJS.ErrnoException, socket: Duplex): void => {
  if (error.code === "ECONNRESET" || !socket.writable) return void socket.destroy()
  const message =
    error.code === "ERR_HTTP_REQUEST_TIMEOUT"
      ? "The request was not received in time."
      : "The request is not valid HTTP or stopped before its end."
  socket.end(rawAnswer("400 Bad Request", JSON.stringify(envelopeOf(malformedJson(message)))))
}

const refuseDraining = (request: IncomingMessage, response: ServerResponse): void => {
  request.resume()
  answerFailure(response, draining, { connection: "close" })
}

/** What every listener bounds. */
export const serverOptions = {
  headersTimeout: headersTimeoutMillis,
  // Bodies have bounds of their own (body.ts): Node's would cut a long upload that makes progress.
  requestTimeout: 0,
  keepAliveTimeout: 75_000,
  connectionsCheckingInterval: 1_000,
  maxHeaderSize: 32 * 1024,
  noDelay: true
} as const

const plainServer: MakeServer = (listener) => createServer(serverOptions, listener)

/** Makes the server of a listener; plain HTTP, unless the listener says otherwise. */
export type MakeServer = (listener: RequestListener) => Server | TlsServer

/**
 * Listens until the scope closes. Then no connection is taken any more, a request on an open one is answered 503
 * `draining`, and running requests have `drainTimeout` to finish.
 */
export const listen = Effect.fn("listen")(function* (
  listener: RequestListener,
  options: ListenerOptions,
  makeServer: MakeServer = plainServer
): Effect.fn.Return<void, ListenFailed, Scope.Scope> {
  let isDraining = false
  const server = makeServer((request, response) => {
    if (isDraining) return refuseDraining(request, response)
    return listener(request, response)
  })
  server.on("clientError", answerBrokenRequest)
  yield* Effect.callback<void, ListenFailed>((resume) => {
    const onError = (error: NodeJS.ErrnoException) => {
      const why = error.code === "EADDRINUSE" ? "the port is taken" : (error.code ?? error.message)
      resume(Effect.fail(new ListenFailed({ message: `Cannot listen on ${options.host}:${options.port}: ${why}` })))
    }
    server.once("error", onError)
    server.listen({ host: options.host, port: options.port, backlog: 4096 }, () => {
      server.off("error", onError)
      resume(Effect.void)
    })
  })
  yield* Effect.addFinalizer(() =>
    Effect.gen(function* () {
      isDraining = true
      const closed = Deferred.makeUnsafe<void>()
      server.close(() => Deferred.doneUnsafe(closed, Effect.void))
      // A kept-alive connection becomes idle when its last answer is out, and only then may be closed.
      const sweep = setInterval(() => server.closeIdleConnections(), 50)
      yield* Deferred.await(closed).pipe(
        Effect.timeoutOrElse({
          duration: options.drainTimeout,
          orElse: () => Effect.logWarning("Running requests did not finish in time; cutting them off")
        })
      )
      clearInterval(sweep)
      server.closeAllConnections()
    })
  )
})
