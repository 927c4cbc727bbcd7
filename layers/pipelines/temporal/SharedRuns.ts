/** Runs that several processes may write at once: whoever writes holds the run's row meanwhile. */
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import type { SqlError } from "effect/sql/SqlError"
import { isFinal, type ReviewDecision, type RunEvent, type RunStatus } from "#domain/pipelines/runs.ts"
import type { RunLog } from "#layers/pipelines/RunJournal.ts"
import { eventTexts, makeRunStatements, OwnershipLost } from "#layers/pipelines/run-log.ts"
import type { RunKey } from "#services/pipelines/WorkflowEngine.ts"
import { Tenants } from "#services/tenants/Tenants.ts"

export const makeSharedRuns = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const tenants = yield* Tenants
  const statements = yield* makeRunStatements

  const rowOf = Effect.fnUntraced(function* (key: RunKey, lock: "" | "FOR UPDATE") {
    const schema = yield* tenants.schemaOf(key.tenant)
    const [row] = yield* sql.unsafe<{ readonly status: RunStatus; readonly workflow_type: string }>(
      `SELECT status, workflow_type FROM ${schema}.pipeline_runs WHERE id = $1 AND tenant = $2 ${lock}`,
      [key.runId, key.tenant]
    )
    return row
  })

  /** Locks the run until the transaction ends; false: it is over, or never was. */
  const hold = (key: RunKey) => Effect.map(rowOf(key, "FOR UPDATE"), (row) => row !== undefined && !isFinal(row.status))

  /** Returns the number of the last event. The caller holds the run. */
  const insert = Effect.fnUntraced(function* (key: RunKey, events: ReadonlyArray<RunEvent>) {
    const schema = yield* tenants.schemaOf(key.tenant)
    const [row] = yield* sql.unsafe<{ readonly last: number }>(
      `WITH known AS (
        SELECT coalesce(max(sequence), 0) AS last FROM ${schema}.pipeline_run_events WHERE run_id = $1::uuid
      ), written AS (
        INSERT INTO ${schema}.pipeline_run_events (run_id, sequence, at, event)
        SELECT $1::uuid, known.last + t.ordinality, $2::timestamptz, t.event
        FROM known, unnest($3::text[]) WITH ORDINALITY AS t (event, ordinality) RETURNING sequence
      ) SELECT greatest(known.last, (SELECT max(sequence) FROM written))::integer AS last FROM known`,
      [key.runId, statements.now(), eventTexts(events)]
    )
    yield* statements.follow(key, events, Effect.void)
    return row!.last
  })

  /** Writes down what somebody did to a run; false: it is over. */
  const tell = (key: RunKey, event: RunEvent) =>
    sql.withTransaction(
      Effect.gen(function* () {
        if (!(yield* hold(key))) return false
        yield* insert(key, [event])
        return true
      })
    )

  return {
    now: () => statements.now().getTime(),
    inTransaction: sql.withTransaction,
    find: (key: RunKey) => rowOf(key, ""),
    read: statements.read,
    tell,

    logOf: (key: RunKey): RunLog => ({
      runId: key.runId,
      shared: true,
      read: (after, limit) => statements.read(key, after, limit),
      write: (events): Effect.Effect<number, SqlError | OwnershipLost> =>
        sql.withTransaction(
          Effect.gen(function* () {
            if (!(yield* hold(key))) return yield* new OwnershipLost({ runId: key.runId })
            return yield* insert(key, yield* events)
          })
        )
    }),

    /** Decides a review and says which; undefined: none waits. */
    decide: (key: RunKey, step: string | undefined, decision: ReviewDecision) =>
      sql.withTransaction(
        Effect.gen(function* () {
          if (!(yield* hold(key))) return undefined
          const taken = yield* statements.takeReview(key, step)
          if (taken === undefined) return undefined
          yield* insert(key, [{ type: "review_decided", step: taken, ...decision }])
          return taken
        })
      ),

    /** Waits until nobody holds the run any more, so that what they wrote can be read. */
    settle: (key: RunKey) => sql.withTransaction(hold(key))
  }
})

export type SharedRuns = Effect.Success<typeof makeSharedRuns>
