import * as PgConnection from "@effect/sql-pg/PgConnection"
import { Clock, Deferred, Duration, Effect, Exit, Layer, Queue, Scope, Semaphore } from "effect"
import { SqlClient, SqlError } from "effect/sql"
import { heartbeat } from "#layers/storage/Heartbeat.ts"
import { ChangeFeed } from "#services/storage/ChangeFeed.ts"
import { DatabaseServer } from "#services/storage/DatabaseServer.ts"

/** The feed's connection as pg_stat_activity shows it. */
export const APPLICATION_NAME = "sluice changes"

const LISTEN_TIMEOUT = Duration.seconds(5)
const FIRST_RETRY_MS = 50
const LAST_RETRY_MS = 1_000

/** Real time: a test's clock has no hold on a socket. */
const clock = Clock.Clock.defaultValue()

type Handler = (payload: string) => void

/** One connection that works: the channels it listens to, each with the scope that ends it. */
interface Line {
  readonly listen: (channel: string) => Effect.Effect<void, SqlError.SqlError>
  readonly unlisten: (channel: string) => Effect.Effect<void>
}

const silent = (): SqlError.SqlError =>
  new SqlError.SqlError({
    reason: new SqlError.ConnectionError({
      cause: new Error("no answer"),
      message: "ChangeFeed: no answer on the connection",
      operation: "listen"
    })
  })

const make = Effect.gen(function* () {
  const server = yield* DatabaseServer
  const sql = yield* SqlClient.SqlClient
  const handlers = new Map<string, Set<Handler>>()
  const hooks = new Set<() => void>()
  const ready = yield* Deferred.make<void, SqlError.SqlError>()
  const turn = yield* Semaphore.make(1)
  const whole = yield* Effect.scope
  const runLog = Effect.runForkWith(yield* Effect.context())
  let line: Line | undefined
  let connectedBefore = false
  let wait = FIRST_RETRY_MS

  const call = (run: () => void): void => {
    try {
      run()
    } catch (cause) {
      runLog(Effect.logError("A change handler failed", cause))
    }
  }

  const openLine = Effect.fnUntraced(function* (lost: Deferred.Deferred<never, SqlError.SqlError>) {
    const scope = yield* Scope.Scope
    const connection = yield* PgConnection.make({
      url: server.url,
      applicationName: APPLICATION_NAME,
      connectTimeout: "3 seconds",
      keepAlive: "10 seconds"
    })
    const pinned = yield* connection.pin
    const channels = new Map<string, Scope.Closeable>()
    const opened: Line = {
      listen: Effect.fnUntraced(function* (channel) {
        if (channels.has(channel)) return
        const own = yield* Scope.fork(scope)
        const queue = yield* pinned
          .listen(channel)
          .pipe(
            Scope.provide(own),
            Effect.timeoutOrElse({ duration: LISTEN_TIMEOUT, orElse: () => Effect.fail(silent()) }),
            Effect.provideService(Clock.Clock, clock)
          )
        channels.set(channel, own)
        yield* Queue.take(queue).pipe(
          Effect.map(({ payload }) => {
            for (const handler of Array.from(handlers.get(channel) ?? [])) call(() => handler(payload))
          }),
          Effect.forever,
          Effect.catchTag("SqlError", (error) => Deferred.fail(lost, error)),
          Effect.forkIn(own)
        )
      }),
      unlisten: (channel) =>
        Effect.suspend(() => {
          const own = channels.get(channel)
          channels.delete(channel)
          return own === undefined ? Effect.void : Scope.close(own, Exit.void)
        })
    }
    return { opened, alive: heartbeat({ ask: pinned.query("SELECT 1"), elsewhere: sql`SELECT 1`, silent }) }
  })

  const connected = Effect.gen(function* () {
    const lost = yield* Deferred.make<never, SqlError.SqlError>()
    const { alive, opened } = yield* openLine(lost)
    yield* turn.withPermit(
      Effect.gen(function* () {
        // A subscription made meanwhile is visited too: iteration of a Map sees what is added to it.
        for (const channel of handlers.keys()) yield* opened.listen(channel)
        line = opened
      })
    )
    if (connectedBefore) {
      yield* Effect.logInfo("The change feed is connected again")
      for (const hook of Array.from(hooks)) call(hook)
    }
    connectedBefore = true
    wait = FIRST_RETRY_MS
    yield* Deferred.succeed(ready, undefined)
    yield* Effect.raceFirst(Deferred.await(lost), alive)
  }).pipe(
    Effect.ensuring(
      Effect.sync(() => {
        line = undefined
      })
    )
  )

  const keepConnected = Effect.gen(function* () {
    while (true) {
      const scope = yield* Scope.fork(whole)
      const error = yield* Effect.flip(Scope.provide(connected, scope))
      // Not waited for: a silent connection takes seconds to close.
      yield* Effect.forkIn(Scope.close(scope, Exit.void), whole)
      if (!connectedBefore) return yield* Deferred.fail(ready, error)
      if (wait === FIRST_RETRY_MS) yield* Effect.logWarning("The change feed lost its connection", error)
      yield* Effect.sleep(wait)
      wait = Math.min(wait * 2, LAST_RETRY_MS)
    }
  })
  yield* keepConnected.pipe(Effect.provideService(Clock.Clock, clock), Effect.forkScoped)
  yield* Deferred.await(ready)

  return ChangeFeed.of({
    subscribe: (channel, handler) => {
      // A function of its own for each subscription, so that two of one handler end apart.
      const subscription: Handler = (payload) => handler(payload)
      const add = Effect.suspend(() => {
        handlers.set(channel, (handlers.get(channel) ?? new Set<Handler>()).add(subscription))
        // A line that fails here is dead; the next one listens to every channel before it counts as connected.
        return line === undefined ? Effect.void : Effect.ignore(line.listen(channel))
      })
      const remove = Effect.suspend(() => {
        const known = handlers.get(channel)
        known?.delete(subscription)
        if (known === undefined || known.size > 0) return Effect.void
        handlers.delete(channel)
        return line === undefined ? Effect.void : line.unlisten(channel)
      })
      return Effect.acquireRelease(turn.withPermit(add), () => turn.withPermit(remove))
    },
    notify: (channel, payload) => Effect.asVoid(sql`SELECT pg_notify(${channel}, ${payload})`),
    onReconnect: (hook) =>
      Effect.acquireRelease(
        Effect.sync(() => void hooks.add(hook)),
        () => Effect.sync(() => void hooks.delete(hook))
      )
  })
})

/**
 * LISTEN on one connection of its own, opened when the layer is built, which fails if that does not work. A lost
 * connection is noticed at once when the socket closes; within 700 ms when it alone falls silent, and within 11 s when the
 * whole server does (`heartbeat`). It is replaced after 50 ms, then at growing intervals up to 1 s.
 */
export const layer: Layer.Layer<ChangeFeed, SqlError.SqlError, DatabaseServer | SqlClient.SqlClient> = Layer.effect(
  ChangeFeed,
  make
)
