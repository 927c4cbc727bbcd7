import { randomUUID } from "node:crypto"
import { Cause, Clock, type Duration, Effect, FiberMap, Layer, Queue, Redacted, Schedule, type Scope } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { sealedContexts } from "#domain/sealed-contexts.ts"
import { maxAttempts, retryDelays, webhookHeaders } from "#domain/webhooks.ts"
import { makeCallbackRequest } from "#layers/callbacks/CallbackRequest.ts"
import { DELIVERIES_CHANNEL } from "#layers/callbacks/OutboxPostgres.ts"
import { ChangeFeed } from "#services/storage/ChangeFeed.ts"
import { Secrets } from "#services/security/Secrets.ts"

export interface CallbackSenderOptions {
  /** Whether callbacks may go to loopback and private networks. */
  readonly allowPrivate: boolean
  /** Milliseconds for one try. Default 15 s. */
  readonly timeout?: number
}

/** Deliveries to one callback that are under way at once in one process. */
const PARALLEL = 4
/** How long a claim keeps other processes off; far longer than a try may take. */
const LEASE_MS = 60_000
/** The longest sleep of a sender that heard nothing. */
const IDLE_MS = 30_000
/** How long what was given up stays, for operators to see. */
const KEPT_MS = 7 * 86_400_000

interface ClaimedRow {
  readonly event_id: string
  readonly body: string
  readonly attempts: number
}

interface TargetRow {
  readonly url: string
  readonly sealed: Uint8Array
  readonly encryption_key_id: string
}

interface DueRow {
  readonly id: string
  readonly due: Date
}

/** The deliveries as rows: claimed for a while, then gone, put off or given up. */
const makeDeliveries = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const clock = yield* Clock.Clock
  const now = () => clock.currentTimeMillisUnsafe()
  return {
    now,
    /** When each callback that is owed something is due. */
    due: sql<DueRow>`SELECT id, due FROM (
        SELECT c.id, (SELECT min(next_attempt_at) FROM public.callback_deliveries d
          WHERE d.callback_id = c.id AND d.failed_at IS NULL) AS due FROM public.callbacks c
      ) AS owed WHERE due IS NOT NULL`,
    target: (callbackId: string) =>
      Effect.map(
        sql<TargetRow>`SELECT url, sealed, encryption_key_id FROM public.callbacks WHERE id = ${callbackId}`,
        ([row]) => row
      ),
    claim: (callbackId: string, lease: string) =>
      sql<ClaimedRow>`WITH due AS MATERIALIZED (
          SELECT event_id FROM public.callback_deliveries
          WHERE callback_id = ${callbackId} AND next_attempt_at <= ${new Date(now())} AND failed_at IS NULL
          ORDER BY next_attempt_at LIMIT ${PARALLEL} FOR UPDATE SKIP LOCKED
        ) UPDATE public.callback_deliveries d
          SET lease = ${lease}, next_attempt_at = ${new Date(now() + LEASE_MS)}
          FROM due WHERE d.callback_id = ${callbackId} AND d.event_id = due.event_id
          RETURNING d.event_id, d.body, d.attempts`,
    delivered: (callbackId: string, row: ClaimedRow) =>
      sql`DELETE FROM public.callback_deliveries WHERE callback_id = ${callbackId} AND event_id = ${row.event_id}`,
    /** Only while the claim is still this one's: another process may have tried meanwhile. */
    failed: (callbackId: string, row: ClaimedRow, lease: string, why: string) => {
      const delay = retryDelays[row.attempts]
      const at = now()
      return sql`UPDATE public.callback_deliveries SET attempts = attempts + 1, lease = NULL, last_error = ${why},
          next_attempt_at = ${new Date(at + (delay ?? 0))}, failed_at = ${delay === undefined ? new Date(at) : null}
        WHERE callback_id = ${callbackId} AND event_id = ${row.event_id} AND lease = ${lease}`
    },
    sweep: Effect.suspend(() =>
      Effect.andThen(
        sql`DELETE FROM public.callback_deliveries WHERE failed_at < ${new Date(now() - KEPT_MS)}`,
        sql`DELETE FROM public.callback_deliveries d
          WHERE NOT EXISTS (SELECT FROM public.callbacks c WHERE c.id = d.callback_id)`
      )
    )
  }
})

/** What a sender does, a step at a time. */
export interface CallbackSender {
  /** Tries everything that is due to a callback now, until nothing is. */
  readonly deliverDue: (callbackId: string) => Effect.Effect<void, SqlError.SqlError>
  /** The callbacks that are owed something, and when it is due in Unix milliseconds. */
  readonly due: Effect.Effect<ReadonlyMap<string, number>, SqlError.SqlError>
  /** Forgets what was given up long ago, and what is owed to callbacks that are gone. */
  readonly sweep: Effect.Effect<void, SqlError.SqlError>
}

/** The steps; connections close with the scope. */
export const makeCallbackSender = Effect.fnUntraced(function* (
  options: CallbackSenderOptions
): Effect.fn.Return<CallbackSender, never, SqlClient.SqlClient | Secrets | Scope.Scope> {
  const secrets = yield* Secrets
  const deliveries = yield* makeDeliveries
  const post = yield* makeCallbackRequest({ allowPrivate: options.allowPrivate, timeout: options.timeout ?? 15_000 })

  const deliver = Effect.fnUntraced(function* (
    callbackId: string,
    url: string,
    secret: Redacted.Redacted<string>,
    row: ClaimedRow,
    lease: string
  ) {
    const fault = yield* post(
      url,
      {
        "content-type": "application/json",
        "user-agent": "sluice-callbacks/1",
        ...webhookHeaders(Redacted.value(secret), { id: row.event_id, body: row.body }, deliveries.now())
      },
      row.body
    )
    if (fault === undefined) return yield* deliveries.delivered(callbackId, row)
    yield* deliveries.failed(callbackId, row, lease, fault)
    if (row.attempts + 1 >= maxAttempts) {
      yield* Effect.logWarning(`Callback ${callbackId} was not told of event ${row.event_id}: ${fault}`)
    }
  })

  const deliverDue = Effect.fnUntraced(function* (callbackId: string) {
    const target = yield* deliveries.target(callbackId)
    if (target === undefined) return
    const sealed = { bytes: target.sealed, keyId: target.encryption_key_id }
    const secret = yield* secrets.open(sealed, sealedContexts.callback(callbackId))
    while (true) {
      const lease = randomUUID()
      const rows = yield* deliveries.claim(callbackId, lease)
      if (rows.length === 0) return
      yield* Effect.forEach(rows, (row) => deliver(callbackId, target.url, secret, row, lease), {
        concurrency: PARALLEL,
        discard: true
      })
    }
  })

  return {
    deliverDue,
    due: Effect.map(deliveries.due, (rows) => new Map(rows.map(({ due, id }) => [id, due.getTime()]))),
    sweep: Effect.asVoid(deliveries.sweep)
  }
})

/** Says what went wrong and waits; an interruption goes through. */
const pauseAfter =
  (message: string, pause: Duration.Input) =>
  (cause: Cause.Cause<unknown>): Effect.Effect<void> =>
    Cause.hasInterruptsOnly(cause)
      ? Effect.failCause(cause as Cause.Cause<never>)
      : Effect.andThen(Effect.logWarning(message, cause), Effect.sleep(pause))

const run = Effect.fnUntraced(function* (options: CallbackSenderOptions) {
  const feed = yield* ChangeFeed
  const clock = yield* Clock.Clock
  const sender = yield* makeCallbackSender(options)
  const workers = yield* FiberMap.make<string>()
  // One signal stands for all that came before it was taken.
  const woken = yield* Queue.sliding<void>(1)
  const wake = () => void Queue.offerUnsafe(woken, undefined)
  yield* feed.subscribe(DELIVERIES_CHANNEL, wake)
  yield* feed.onReconnect(wake)

  const work = (callbackId: string) =>
    sender.deliverDue(callbackId).pipe(
      // What is due stays due: without a pause it would be tried at once.
      Effect.catchCause(pauseAfter(`Callback ${callbackId} could not be served`, "15 seconds")),
      Effect.ensuring(Effect.sync(wake))
    )

  const round = Effect.gen(function* () {
    const due = yield* sender.due
    const now = clock.currentTimeMillisUnsafe()
    let next = now + IDLE_MS
    for (const [callbackId, at] of due) {
      if (at > now) next = Math.min(next, at)
      else if (!(yield* FiberMap.has(workers, callbackId))) yield* FiberMap.run(workers, callbackId, work(callbackId))
    }
    yield* Effect.raceFirst(Queue.take(woken), Effect.sleep(next - now))
  })

  yield* round.pipe(
    Effect.catchCause(pauseAfter("Callbacks wait: their deliveries cannot be read", "2 seconds")),
    Effect.forever,
    Effect.forkScoped
  )
  yield* sender.sweep.pipe(
    Effect.catchCause(pauseAfter("Old deliveries could not be removed", 0)),
    Effect.repeat(Schedule.spaced("1 hour")),
    Effect.forkScoped
  )
})

/**
 * Delivers the outbox from this process: one fiber for each callback that is owed something, so that a slow receiver holds
 * up nobody but itself. Any number of processes share the work: a claim skips what another holds, and what a dead one held
 * comes up again after a minute. A delivery is gone from the outbox when its receiver answered 2xx, and tried ten times in
 * 24 hours before it is given up.
 */
export const layer = (
  options: CallbackSenderOptions
): Layer.Layer<never, never, SqlClient.SqlClient | ChangeFeed | Secrets> => Layer.effectDiscard(run(options))
