/**
 * The mutual-TLS listener (decisions.md, section 1). A client without a certificate of the client CA is answered 401, on
 * every path; the certificates on disk are followed, so that a CA that is taken out of its file is refused at once, on
 * connections that stand already too.
 */
import { constants, X509Certificate } from "node:crypto"
import { readFileSync, statSync } from "node:fs"
import type { IncomingMessage, RequestListener, ServerResponse } from "node:http"
import { createServer } from "node:https"
import { TLSSocket } from "node:tls"
import { Clock, type Duration, Effect, Schedule, type Scope } from "effect"
import { modelUnauthenticated } from "#domain/errors.ts"
import { listen, ListenFailed, serverOptions } from "#http/listener.ts"
import { answerFailure, requestIdOf } from "#http/node-answers.ts"

export interface MutualTlsOptions {
  readonly host: string
  readonly port: number
  /** Paths of PEM files. */
  readonly cert: string
  readonly key: string
  readonly clientCa: string
}

/** How often the files are looked at. */
const reloadEvery = "1 second"

const certificate = /-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----/g

/** The certificates of a PEM file; an empty list trusts nobody. */
const certificatesIn = (path: string): ReadonlyArray<string> => readFileSync(path, "utf8").match(certificate) ?? []

const contextOf = (options: MutualTlsOptions) => ({
  cert: readFileSync(options.cert),
  key: readFileSync(options.key),
  // Never left out: without a list Node would trust the public CAs.
  ca: [...certificatesIn(options.clientCa)]
})

const stampOf = (path: string): string => {
  try {
    const { ino, mtimeMs, size } = statSync(path)
    return `${ino} ${mtimeMs} ${size}`
  } catch {
    return "absent"
  }
}

/** Whether a client certificate of a trusted CA stands behind a request. */
export const isAttested = (request: IncomingMessage): boolean =>
  request.socket instanceof TLSSocket && request.socket.authorized

const refuse = (request: IncomingMessage, response: ServerResponse, now: number): void => {
  request.resume()
  answerFailure(response, modelUnauthenticated, { "x-request-id": requestIdOf(request, now), connection: "close" })
}

const isIssuedByAny = (client: X509Certificate | undefined, authorities: ReadonlyArray<X509Certificate>): boolean =>
  client !== undefined && authorities.some((ca) => client.checkIssued(ca) && client.verify(ca.publicKey))

/** Listens until the scope closes. Fails when the files cannot be used. */
export const listenMutualTls = Effect.fn("listenMutualTls")(function* (
  listener: RequestListener,
  options: MutualTlsOptions,
  drainTimeout: Duration.Duration
): Effect.fn.Return<void, ListenFailed, Scope.Scope> {
  const clock = yield* Clock.Clock
  const files = [options.cert, options.key, options.clientCa]
  const stamps = () => files.map(stampOf).join()
  let seen = stamps()
  const unusable = (cause: unknown) =>
    new ListenFailed({
      message: `The files of GATEWAY_UDF_TLS_CERT, GATEWAY_UDF_TLS_KEY and GATEWAY_UDF_TLS_CLIENT_CA cannot be used: ${
        cause instanceof Error ? cause.message : String(cause)
      }`
    })
  const server = yield* Effect.try({
    try: () => {
      const context = contextOf(options)
      if (context.ca.length === 0) throw new Error("the client CA file holds no certificate")
      return createServer({
        ...serverOptions,
        ...context,
        minVersion: "TLSv1.2",
        requestCert: true,
        // Refused in the envelope, below, and not by an alert that most clients cannot explain.
        rejectUnauthorized: false,
        // No session outlives the trust it was made under.
        secureOptions: constants.SSL_OP_NO_TICKET
      })
    },
    catch: unusable
  })
  const sockets = new Set<TLSSocket>()
  server.on("secureConnection", (socket: TLSSocket) => {
    sockets.add(socket)
    socket.once("close", () => sockets.delete(socket))
  })

  /** What stands on a certificate that no CA vouches for any more ends; its client may connect again. */
  const dropDistrusted = (authorities: ReadonlyArray<X509Certificate>) => {
    for (const socket of sockets) {
      if (socket.authorized && !isIssuedByAny(socket.getPeerX509Certificate(), authorities)) socket.destroy()
    }
  }

  let trusting = true
  const reload = Effect.suspend(() => {
    const found = stamps()
    if (found === seen) return Effect.void
    seen = found
    return Effect.try({
      try: () => {
        server.setSecureContext(contextOf(options))
        dropDistrusted(certificatesIn(options.clientCa).map((pem) => new X509Certificate(pem)))
        trusting = true
      },
      catch: unusable
    }).pipe(
      Effect.andThen(Effect.logInfo("The certificates of the mutual-TLS listener were read again")),
      // While the files cannot be used nobody is let in, those included who were let in before.
      Effect.catch((failure) => {
        trusting = false
        dropDistrusted([])
        return Effect.logError(failure.message)
      })
    )
  })

  yield* listen(
    (request, response) =>
      trusting && isAttested(request)
        ? listener(request, response)
        : refuse(request, response, clock.currentTimeMillisUnsafe()),
    { host: options.host, port: options.port, drainTimeout },
    (serve) => server.on("request", serve)
  )
  yield* Effect.repeat(reload, Schedule.spaced(reloadEvery)).pipe(Effect.forkScoped)
})
