/** The statements of the embedded engine. Leases go by the database's clock, which all processes share. */
import * as PgTypes from "@effect/sql-pg/PgTypes"
import { Clock, Data, Effect, Result } from "effect"
import { SqlClient } from "effect/sql"
import type { SqlError } from "effect/sql/SqlError"
import type { HistoryEvent, RunEvent } from "#domain/pipelines/runs.ts"
import { RunRecords, type RunTransition } from "#services/pipelines/RunRecords.ts"
import type { RunKey } from "#services/pipelines/WorkflowEngine.ts"
import { Tenants } from "#services/tenants/Tenants.ts"

/** Somebody else works on the run now, or it is over. */
export class OwnershipLost extends Data.TaggedError("OwnershipLost")<{ readonly runId: string }> {}

/** A run that this process works on. */
export interface Claim extends RunKey {
  readonly epoch: number
}

/** Told when a run is due, or something came for one that is worked on; the payload is its id. */
export const RUNS_CHANNEL = "workflow_runs"

interface EventRow {
  readonly sequence: number
  readonly at: Date
  readonly event: string
}

const transitionOf = (event: RunEvent): RunTransition | undefined => {
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

export const makeExecutions = Effect.fnUntraced(function* (owner: string, leaseMs: number) {
  const sql = yield* SqlClient.SqlClient
  const clock = yield* Clock.Clock
  const tenants = yield* Tenants
  const records = yield* RunRecords
  const array = (type: "text" | "uuid", values: ReadonlyArray<unknown>) =>
    Result.getOrThrow(PgTypes.array(values, PgTypes.OID[type]))
  const lease = `clock_timestamp() + interval '${Math.round(leaseMs)} milliseconds'`
  const now = () => new Date(clock.currentTimeMillisUnsafe())

  /** `who` narrows to the owner; the row stays locked until the transaction ends. Returns the last sequence number. */
  const append = Effect.fnUntraced(function* (key: RunKey, epoch: number | undefined, events: ReadonlyArray<RunEvent>) {
    const schema = yield* tenants.schemaOf(key.tenant)
    const rows = yield* sql.unsafe<{ readonly sequence: number }>(
      `WITH held AS (
        UPDATE public.workflow_executions SET events = events + $3::integer
        WHERE run_id = $1::uuid AND ($2::integer IS NULL OR epoch = $2::integer) RETURNING events
      ) INSERT INTO ${schema}.pipeline_run_events (run_id, sequence, at, event)
      SELECT $1::uuid, held.events - $3::integer + t.ordinality, $4::timestamptz, t.event
      FROM held, unnest($5::text[]) WITH ORDINALITY AS t (event, ordinality) RETURNING sequence`,
      [
        key.runId,
        epoch ?? null,
        events.length,
        now(),
        array(
          "text",
          events.map((event) => JSON.stringify(event))
        )
      ]
    )
    const last = rows.reduce((most, row) => Math.max(most, row.sequence), 0)
    return rows.length === 0 ? yield* new OwnershipLost({ runId: key.runId }) : last
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

  /** The reviews of a run that is over are nobody's business any more. */
  const leave = Effect.fnUntraced(function* (key: RunKey) {
    const schema = yield* tenants.schemaOf(key.tenant)
    yield* sql`DELETE FROM public.workflow_executions WHERE run_id = ${key.runId}`
    yield* sql.unsafe(`DELETE FROM ${schema}.pipeline_reviews WHERE run_id = $1 AND decided_at IS NULL`, [key.runId])
  })

  const notify = (runId: string) => sql`SELECT pg_notify(${RUNS_CHANNEL}, ${runId})`

  return {
    now: () => clock.currentTimeMillisUnsafe(),
    records,
    read,

    insert: (key: RunKey) =>
      Effect.andThen(
        sql`INSERT INTO public.workflow_executions (run_id, tenant, wake_at) VALUES (${key.runId}, ${key.tenant}, ${now()})`,
        notify(key.runId)
      ),

    /**
     * Takes up to `limit` runs that are due, of tenants that are served here and have not enough already. What is still
     * being worked on here has to end first, even if its lease has run out.
     */
    claim: (limit: number, busyTenants: ReadonlyArray<string>, present: ReadonlyArray<string>) =>
      sql.unsafe<{ readonly run_id: string; readonly tenant: string; readonly epoch: number }>(
        `WITH due AS MATERIALIZED (
          SELECT run_id FROM public.workflow_executions
          WHERE ((owner IS NULL AND wake_at <= $1) OR (owner IS NOT NULL AND lease_until < clock_timestamp()))
            AND ($5::boolean OR tenant = ANY ($3::text[])) AND tenant <> ALL ($4::text[])
            AND run_id <> ALL ($6::uuid[])
          ORDER BY wake_at LIMIT ${limit} FOR UPDATE SKIP LOCKED
        ) UPDATE public.workflow_executions e SET owner = $2, epoch = e.epoch + 1, lease_until = ${lease}
        FROM due WHERE e.run_id = due.run_id RETURNING e.run_id, e.tenant, e.epoch`,
        [
          now(),
          owner,
          array("text", ["", ...tenants.slugs]),
          array("text", busyTenants),
          tenants.dormant,
          array("uuid", present)
        ]
      ),

    /** Prolongs the leases of what is worked on here; returns the epochs of those that were still held. */
    renew: (runIds: ReadonlyArray<string>) =>
      Effect.map(
        sql.unsafe<{ readonly run_id: string; readonly epoch: number }>(
          `UPDATE public.workflow_executions SET lease_until = ${lease} WHERE owner = $1 AND run_id = ANY ($2::uuid[])
          RETURNING run_id, epoch`,
          [owner, array("uuid", runIds)]
        ),
        (rows) => new Map(rows.map((row) => [row.run_id, row.epoch]))
      ),

    /** Gives up what a former life of this owner held: it is dead, or this would not have started. */
    abandon: (prefix: string) =>
      sql.unsafe(
        `UPDATE public.workflow_executions SET lease_until = '-infinity' WHERE starts_with(owner, $1) AND owner <> $2`,
        [prefix, owner]
      ),

    /** Everything held here comes up again at once. */
    releaseAll: sql`UPDATE public.workflow_executions SET owner = NULL, lease_until = NULL, wake_at = ${now()}
      WHERE owner = ${owner}`,

    /** Puts a run down until `wakeAt`. False: something came for it meanwhile, look again. */
    release: (claim: Claim, sequence: number, wakeAt: number) =>
      Effect.map(
        sql<{ readonly run_id: string }>`UPDATE public.workflow_executions
          SET owner = NULL, lease_until = NULL, wake_at = ${new Date(wakeAt)}
          WHERE run_id = ${claim.runId} AND epoch = ${claim.epoch} AND events = ${sequence} RETURNING run_id`,
        (rows) => rows.length === 1
      ),

    /** Writes what an owner did, with all that follows from it, or fails with `OwnershipLost`. */
    write: (claim: Claim, events: ReadonlyArray<RunEvent>): Effect.Effect<number, SqlError | OwnershipLost> => {
      const special = events.flatMap((event) => {
        const transition = transitionOf(event)
        return transition === undefined ? [] : [{ event, transition }]
      })
      if (special.length === 0) return append(claim, claim.epoch, events)
      return sql.withTransaction(
        Effect.gen(function* () {
          const sequence = yield* append(claim, claim.epoch, events)
          for (const { event, transition } of special) {
            if (event.type === "review_requested") yield* requestReview(claim, event)
            yield* records.transition(claim, transition)
            if (event.type === "run_completed" || event.type === "run_failed" || event.type === "run_cancelled") {
              yield* leave(claim)
            }
          }
          return sequence
        })
      )
    },

    /** Something that others did to a run: it is woken. False: the run is over. */
    tell: (key: RunKey, event: RunEvent): Effect.Effect<boolean, SqlError> =>
      sql
        .withTransaction(
          Effect.gen(function* () {
            yield* append(key, undefined, [event])
            if (event.type === "run_terminated") {
              yield* records.transition(key, { status: "terminated" })
              yield* leave(key)
            } else {
              yield* sql`UPDATE public.workflow_executions SET wake_at = ${now()},
              cancel_requested = cancel_requested OR ${event.type === "cancel_requested"} WHERE run_id = ${key.runId}`
            }
            yield* notify(key.runId)
            return true
          })
        )
        .pipe(Effect.catchTag("OwnershipLost", () => Effect.succeed(false))),

    /** Marks a review as decided and says which; undefined: none waits. */
    takeReview: Effect.fnUntraced(function* (key: RunKey, step: string | undefined) {
      const schema = yield* tenants.schemaOf(key.tenant)
      const held = yield* sql`SELECT run_id FROM public.workflow_executions WHERE run_id = ${key.runId} FOR UPDATE`
      if (held.length === 0) return undefined
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
    }),

    inTransaction: sql.withTransaction
  }
})

export type Executions = Effect.Success<ReturnType<typeof makeExecutions>>

/** PostgreSQL holds no NUL in a text. */
const storable = (text: string): string => text.toWellFormed().replaceAll("\0", "\ufffd")
