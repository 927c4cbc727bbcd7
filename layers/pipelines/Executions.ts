/** The statements of the embedded engine. Leases go by the database's clock, which all processes share. */
import { Clock, Effect } from "effect"
import { SqlClient } from "effect/sql"
import type { SqlError } from "effect/sql/SqlError"
import type { RunEvent } from "#domain/pipelines/runs.ts"
import type { RunLog } from "#layers/pipelines/RunJournal.ts"
import { array, eventTexts, makeRunStatements, OwnershipLost, transitionOf } from "#layers/pipelines/run-log.ts"
import { RunRecords } from "#services/pipelines/RunRecords.ts"
import type { RunKey } from "#services/pipelines/WorkflowEngine.ts"
import { Tenants } from "#services/tenants/Tenants.ts"

/** A run that this process works on. */
export interface Claim extends RunKey {
  readonly epoch: number
}

/** Told when a run is due, or something came for one that is worked on; the payload is its id. */
export const RUNS_CHANNEL = "workflow_runs"

export const makeExecutions = Effect.fnUntraced(function* (owner: string, leaseMs: number) {
  const sql = yield* SqlClient.SqlClient
  const clock = yield* Clock.Clock
  const tenants = yield* Tenants
  const records = yield* RunRecords
  const statements = yield* makeRunStatements
  const { now, read } = statements
  const lease = `clock_timestamp() + interval '${Math.round(leaseMs)} milliseconds'`

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
      [key.runId, epoch ?? null, events.length, now(), eventTexts(events)]
    )
    const last = rows.reduce((most, row) => Math.max(most, row.sequence), 0)
    return rows.length === 0 ? yield* new OwnershipLost({ runId: key.runId }) : last
  })

  const leave = (key: RunKey) => sql`DELETE FROM public.workflow_executions WHERE run_id = ${key.runId}`

  const notify = (runId: string) => sql`SELECT pg_notify(${RUNS_CHANNEL}, ${runId})`

  /** Writes what an owner did, with all that follows from it, or fails with `OwnershipLost`. */
  const write = (claim: Claim, events: ReadonlyArray<RunEvent>): Effect.Effect<number, SqlError | OwnershipLost> =>
    events.every((event) => transitionOf(event) === undefined)
      ? append(claim, claim.epoch, events)
      : sql.withTransaction(
          Effect.tap(append(claim, claim.epoch, events), () => statements.follow(claim, events, leave(claim)))
        )

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

    /** The history of a run that this process owns. */
    logOf: (claim: Claim): RunLog => ({
      runId: claim.runId,
      shared: false,
      read: (after, limit) => read(claim, after, limit),
      write: (events) => Effect.flatMap(events, (written) => write(claim, written))
    }),

    /** Something that others did to a run: it is woken. False: the run is over. */
    tell: (key: RunKey, event: RunEvent): Effect.Effect<boolean, SqlError> =>
      sql
        .withTransaction(
          Effect.gen(function* () {
            yield* append(key, undefined, [event])
            if (event.type === "run_terminated") yield* statements.follow(key, [event], leave(key))
            else {
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
      const held = yield* sql`SELECT run_id FROM public.workflow_executions WHERE run_id = ${key.runId} FOR UPDATE`
      return held.length === 0 ? undefined : yield* statements.takeReview(key, step)
    }),

    inTransaction: sql.withTransaction
  }
})

export type Executions = Effect.Success<ReturnType<typeof makeExecutions>>
