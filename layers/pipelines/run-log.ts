/** The history and the reviews of runs in their tenant's schema: the statements that both engines share. */
import * as PgTypes from "@effect/sql-pg/PgTypes"
import { Clock, Data, Effect, Result } from "effect"
import { SqlClient } from "effect/sql"
import type { HistoryEvent, RunEvent } from "#domain/pipelines/runs.ts"
import { RunRecords, type RunTransition } from "#services/pipelines/RunRecords.ts"
import type { RunKey } from "#services/pipelines/WorkflowEngine.ts"
import { Tenants } from "#services/tenants/Tenants.ts"

/** Somebody else works on the run or the step now, or it is over. */
export class OwnershipLost extends Data.TaggedError("OwnershipLost")<{ readonly runId: string }> {}

interface EventRow {
  readonly sequence: number
  readonly at: Date
  readonly event: string
}

export const transitionOf = (event: RunEvent): RunTransition | undefined => {
  switch (event.type) {
    case "run_started":
      return { status: "running" }
    case "review_requested":
      return { status: "awaiting_review", step: event.step }
    case "run_completed":
      return { status: "completed", outputs: event.outputs }
    case "run_failed":
      return { status: "failed", error: event.error }
    case "run_cancelled":
      return { status: "cancelled" }
    case "run_terminated":
      return { status: "terminated" }
    default:
      return undefined
  }
}

/** PostgreSQL holds no NUL in a text. */
const storable = (text: string): string => text.toWellFormed().replaceAll("\0", "\ufffd")

export const array = (type: "text" | "uuid", values: ReadonlyArray<unknown>) =>
  Result.getOrThrow(PgTypes.array(values, PgTypes.OID[type]))

export const eventTexts = (events: ReadonlyArray<RunEvent>) =>
  array(
    "text",
    events.map((event) => JSON.stringify(event))
  )

export const makeRunStatements = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const clock = yield* Clock.Clock
  const tenants = yield* Tenants
  const records = yield* RunRecords
  const now = () => new Date(clock.currentTimeMillisUnsafe())

  const read = Effect.fnUntraced(function* (key: RunKey, after: number, limit: number) {
    const schema = yield* tenants.schemaOf(key.tenant)
    const rows = yield* sql.unsafe<EventRow>(
      `SELECT sequence, at, event FROM ${schema}.pipeline_run_events WHERE run_id = $1 AND sequence > $2::integer
      ORDER BY sequence LIMIT ${limit}`,
      [key.runId, after]
    )
    return rows.map((row): HistoryEvent => ({
      sequence: row.sequence,
      at: row.at.getTime(),
      event: JSON.parse(row.event) as RunEvent
    }))
  })

  const requestReview = Effect.fnUntraced(function* (
    key: RunKey,
    event: Extract<RunEvent, { readonly type: "review_requested" }>
  ) {
    const schema = yield* tenants.schemaOf(key.tenant)
    yield* sql.unsafe(
      `INSERT INTO ${schema}.pipeline_reviews (run_id, step_id, title, details, reviewer_role, requested_at, deadline)
      VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING`,
      [
        key.runId,
        event.step,
        storable(event.title),
        JSON.stringify(event.details),
        storable(event.reviewerRole),
        now(),
        new Date(event.deadline)
      ]
    )
  })

  /** The reviews of a run that is over are nobody's business any more. */
  const dropReviews = Effect.fnUntraced(function* (key: RunKey) {
    const schema = yield* tenants.schemaOf(key.tenant)
    yield* sql.unsafe(`DELETE FROM ${schema}.pipeline_reviews WHERE run_id = $1 AND decided_at IS NULL`, [key.runId])
  })

  /** What follows from events that were written: reviews, the row, what callbacks hear. `over` is run at the end of a run. */
  const follow = Effect.fnUntraced(function* <E>(
    key: RunKey,
    events: ReadonlyArray<RunEvent>,
    over: Effect.Effect<unknown, E>
  ) {
    for (const event of events) {
      const transition = transitionOf(event)
      if (transition === undefined) continue
      if (event.type === "review_requested") yield* requestReview(key, event)
      yield* records.transition(key, transition)
      if (event.type === "run_started" || event.type === "review_requested") continue
      yield* dropReviews(key)
      yield* over
    }
  })

  /** Marks a review as decided and says which; undefined: none waits. The caller holds the run. */
  const takeReview = Effect.fnUntraced(function* (key: RunKey, step: string | undefined) {
    const schema = yield* tenants.schemaOf(key.tenant)
    const [taken] = yield* sql.unsafe<{ readonly step_id: string }>(
      `UPDATE ${schema}.pipeline_reviews SET decided_at = $3 WHERE run_id = $1 AND step_id = (
        SELECT step_id FROM ${schema}.pipeline_reviews
        WHERE run_id = $1 AND decided_at IS NULL AND ($2::text IS NULL OR step_id = $2::text)
        ORDER BY requested_at, step_id LIMIT 1
      ) RETURNING step_id`,
      [key.runId, step ?? null, now()]
    )
    if (taken === undefined) return undefined
    const left = yield* sql.unsafe(
      `SELECT 1 FROM ${schema}.pipeline_reviews WHERE run_id = $1 AND decided_at IS NULL LIMIT 1`,
      [key.runId]
    )
    if (left.length === 0) yield* records.transition(key, { status: "running" })
    return taken.step_id
  })

  return { now, read, follow, takeReview }
})

export type RunStatements = Effect.Success<typeof makeRunStatements>
