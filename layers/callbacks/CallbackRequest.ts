import { lookup } from "node:dns"
import { Effect } from "effect"
import { Agent, buildConnector, request } from "undici"
import { checkLiteral, EgressRefused, guardedLookup } from "#domain/egress.ts"

export interface CallbackRequestOptions {
  /** Whether loopback and private networks may be called. */
  readonly allowPrivate: boolean
  /** Milliseconds for the whole exchange. */
  readonly timeout: number
}

/** Of an answer, only the status counts; this much of it is read so that the connection can be used again. */
const MAX_ANSWER_BYTES = 64 * 1024

const guardedAgent = (options: CallbackRequestOptions): Agent => {
  const connect = buildConnector({
    allowH2: false,
    timeout: options.timeout,
    lookup: guardedLookup(options.allowPrivate, lookup)
  })
  return new Agent({
    connections: 8,
    pipelining: 1,
    keepAliveTimeout: 10_000,
    headersTimeout: options.timeout,
    bodyTimeout: options.timeout,
    maxHeaderSize: 16 * 1024,
    connect: (target, callback) => {
      const refused = checkLiteral(target.hostname, options.allowPrivate)
      if (refused === undefined) connect(target, callback)
      else process.nextTick(callback, refused, null)
    }
  })
}

/** Why a try failed, in words that go into the row: never the receiver's own. */
const faultOf = (cause: unknown): string => {
  if (cause instanceof EgressRefused) return "its address is not allowed"
  const name = cause instanceof Error ? cause.name : ""
  if (name === "TimeoutError" || name.includes("Timeout")) return "no answer in time"
  const code = typeof cause === "object" && cause !== null && "code" in cause ? String(cause.code) : ""
  if (code === "ECONNREFUSED") return "the connection was refused"
  if (code === "ENOTFOUND" || code === "EAI_AGAIN") return "its name cannot be resolved"
  return "the connection broke"
}

/**
 * Posts a delivery; the agent closes with the scope. The result is undefined for a 2xx answer, else what was wrong: a
 * redirect is never followed, because the guard judged another address.
 */
export const makeCallbackRequest = (options: CallbackRequestOptions) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() => guardedAgent(options)),
      (agent) => Effect.promise(() => agent.destroy())
    ),
    (dispatcher) =>
      (url: string, headers: Record<string, string>, body: string): Effect.Effect<string | undefined> =>
        Effect.tryPromise({
          try: async (interrupted) => {
            // The socket's deadline is real time, whatever clock the schedule goes by.
            const signal = AbortSignal.any([interrupted, AbortSignal.timeout(options.timeout)])
            const answer = await request(url, { method: "POST", headers, body, signal, dispatcher })
            await answer.body.dump({ limit: MAX_ANSWER_BYTES, signal }).catch(() => undefined)
            const status = answer.statusCode
            return status >= 200 && status < 300 ? undefined : `it answered ${status}`
          },
          catch: faultOf
        }).pipe(Effect.catch(Effect.succeed))
  )
