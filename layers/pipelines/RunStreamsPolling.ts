import { Cause, Clock, Effect, FiberMap, Layer, Queue, Stream } from "effect"
import { SqlClient } from "effect/sql"
import { envelopeOf, internalFailure, Unavailable } from "#domain/errors.ts"
import { instantText } from "#domain/instants.ts"
import type { Json } from "#domain/json.ts"
import { isFinal, type RunStatus } from "#domain/pipelines/runs.ts"
import { RunStreams } from "#services/pipelines/RunStreams.ts"
import { type RunKey, WorkflowEngine } from "#services/pipelines/WorkflowEngine.ts"
import { Tenants } from "#services/tenants/Tenants.ts"

export interface RunStreamOptions {
  /** Milliseconds between two polls of one run (management-api.md, "Limits"). Default 2 s. */
  readonly interval?: number
  /** Viewers of all runs in one process. Default 10,000. */
  readonly maxViewers?: number
}

/** Polls that may fail one after the other before the viewers are told. */
const maxFailures = 15

/** Events that a slow viewer may be behind; the oldest go first, so the last is never lost. */
const mailbox = 8

interface StatusRow {
  readonly status: RunStatus
  readonly updated_at: Date
  readonly outputs: string | null
  readonly error: string | null
}

type Mailbox = Queue.Queue<Uint8Array, Cause.Done>

/** One run that somebody watches: its viewers, and the last that was seen of it. */
interface Watched {
  readonly key: RunKey
  readonly viewers: Set<Mailbox>
  seen: StatusRow | undefined
}

const encoder = new TextEncoder()

const eventBytes = (event: string, data: { readonly [name: string]: Json }): Uint8Array =>
  encoder.encode(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`)

const statusBytes = ({ runId }: RunKey, row: StatusRow, previous: RunStatus | null): Uint8Array => {
  const data = {
    run_id: runId,
    status: row.status,
    previous_status: previous,
    at: instantText(row.updated_at.getTime())
  }
  if (!isFinal(row.status)) return eventBytes("state-change", data)
  return eventBytes("terminal", {
    ...data,
    outputs: row.outputs === null ? null : (JSON.parse(row.outputs) as Json),
    error: row.error === null ? null : (JSON.parse(row.error) as Json)
  })
}

const overloaded = new Unavailable({
  code: "overloaded",
  message: "The gateway has as many viewers of runs as it may.",
  retryAfter: 5
})

/** An actor for each run that is watched: one poll every two seconds, however many watch. It ends with its last viewer. */
export const layer = (
  options: RunStreamOptions = {}
): Layer.Layer<RunStreams, never, SqlClient.SqlClient | Tenants | WorkflowEngine> =>
  Layer.effect(
    RunStreams,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const tenants = yield* Tenants
      const engine = yield* WorkflowEngine
      const clock = yield* Clock.Clock
      const interval = options.interval ?? 2000
      const maxViewers = options.maxViewers ?? 10_000
      const watched = new Map<string, Watched>()
      const pollers = yield* FiberMap.make<string>()
      let viewers = 0

      const read = Effect.fnUntraced(function* ({ runId, tenant }: RunKey) {
        const schema = yield* tenants.schemaOf(tenant)
        const [row] = yield* sql.unsafe<StatusRow>(
          `SELECT status, updated_at, outputs, error FROM ${schema}.pipeline_runs WHERE id = $1 AND tenant = $2`,
          [runId, tenant]
        )
        return row
      })

      const send = (run: Watched, bytes: Uint8Array, last: boolean) => {
        for (const viewer of run.viewers) {
          Queue.offerUnsafe(viewer, bytes)
          if (last) Queue.endUnsafe(viewer)
        }
      }

      /** True when there is nothing left to tell. */
      const poll = (run: Watched) =>
        Effect.map(Effect.andThen(engine.refresh(run.key), read(run.key)), (row) => {
          if (row === undefined) return false
          const previous = run.seen?.status ?? null
          run.seen = row
          if (row.status === previous) {
            const at = instantText(clock.currentTimeMillisUnsafe())
            send(run, eventBytes("heartbeat", { run_id: run.key.runId, status: row.status, at }), false)
            return false
          }
          send(run, statusBytes(run.key, row, previous), isFinal(row.status))
          return isFinal(row.status)
        })

      const follow = Effect.fnUntraced(function* (run: Watched) {
        let failures = 0
        while (failures < maxFailures) {
          const startedAt = performance.now()
          const over = yield* Effect.catchCause(poll(run), (cause) => {
            if (Cause.hasInterruptsOnly(cause)) return Effect.failCause(cause as Cause.Cause<never>)
            failures++
            return Effect.as(Effect.logWarning("A watched pipeline run cannot be read", cause), undefined)
          })
          if (over === true) return
          if (over === false) failures = 0
          // The time that the poll itself took is part of its turn.
          yield* Effect.sleep(Math.max(0, interval - (performance.now() - startedAt)))
        }
        send(run, eventBytes("error", { ...envelopeOf(internalFailure) }), true)
      })

      const leave = (name: string, run: Watched, viewer: Mailbox) =>
        Effect.suspend(() => {
          if (run.viewers.delete(viewer)) viewers--
          if (run.viewers.size > 0 || watched.get(name) !== run) return Effect.void
          watched.delete(name)
          return FiberMap.remove(pollers, name)
        })

      const enter = Effect.fnUntraced(function* (key: RunKey) {
        const name = `${key.tenant}/${key.runId}`
        const viewer = yield* Queue.sliding<Uint8Array, Cause.Done>(mailbox)
        viewers++
        let run = watched.get(name)
        if (run === undefined) {
          run = { key, viewers: new Set([viewer]), seen: undefined }
          watched.set(name, run)
          yield* FiberMap.run(pollers, name, follow(run))
        } else {
          run.viewers.add(viewer)
          const { seen } = run
          if (seen !== undefined) {
            Queue.offerUnsafe(viewer, statusBytes(key, seen, null))
            if (isFinal(seen.status)) Queue.endUnsafe(viewer)
          }
        }
        return { name, run, viewer }
      })

      return RunStreams.of({
        viewers: () => viewers,
        watch: (key) =>
          Effect.suspend(() =>
            viewers >= maxViewers
              ? Effect.fail(overloaded)
              : Effect.succeed(
                  Stream.unwrap(
                    Effect.map(
                      Effect.acquireRelease(enter(key), ({ name, run, viewer }) => leave(name, run, viewer)),
                      ({ viewer }) => Stream.fromQueue(viewer)
                    )
                  )
                )
          )
      })
    })
  )
