/** Finished runs leave with their history and their reviews when nobody is expected to ask for them any more. */
import { Clock, Duration, Effect, Layer, Schedule } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { publicTenant } from "#domain/principal.ts"
import { Tenants } from "#services/tenants/Tenants.ts"

export interface RunRetentionOptions {
  /** How long a run is kept after its end; zero: for ever. */
  readonly keep: Duration.Duration
}

/** Runs, and rows of their histories, that one statement deletes: a `map` over 1,000 items has thousands of events. */
const RUNS = 100
const EVENTS = 5_000
/** Statements of one round in one schema; what is left waits for the next. */
const STEPS = 200
const EVERY = "10 minutes"

/**
 * Deletes what ended before `before` (Unix milliseconds) and says how many runs; `undefined` when another process is
 * doing it. A run's row goes last, so that a purge which was killed on the way is taken up again.
 */
export const purgeRuns = Effect.fn("purgeRuns")(function* (
  schema: string,
  before: number
): Effect.fn.Return<number | undefined, SqlError.SqlError, SqlClient.SqlClient> {
  const sql = yield* SqlClient.SqlClient
  const limit = new Date(before)

  /** The deleted runs of one transaction, and whether there may be more. */
  const step = Effect.gen(function* () {
    const [lock] = yield* sql<{ held: boolean }>`
      SELECT pg_try_advisory_xact_lock(hashtext('sluice run retention'), hashtext(${schema})) AS held`
    if (lock?.held !== true) return undefined
    const ended = `SELECT id FROM ${schema}.pipeline_runs WHERE finished_at < $1::timestamptz ORDER BY finished_at LIMIT ${RUNS}`
    const [events] = yield* sql.unsafe<{ deleted: number }>(
      `WITH ended AS MATERIALIZED (${ended}), part AS MATERIALIZED (
        SELECT e.run_id, e.sequence FROM ended JOIN ${schema}.pipeline_run_events e ON e.run_id = ended.id LIMIT ${EVENTS}
      ), gone AS (
        DELETE FROM ${schema}.pipeline_run_events e USING part
        WHERE e.run_id = part.run_id AND e.sequence = part.sequence RETURNING 1
      ) SELECT count(*)::int AS deleted FROM gone`,
      [limit]
    )
    if ((events?.deleted ?? 0) === EVENTS) return { runs: 0, more: true }
    const [runs] = yield* sql.unsafe<{ deleted: number }>(
      `WITH ended AS MATERIALIZED (${ended} FOR UPDATE), reviews AS (
        DELETE FROM ${schema}.pipeline_reviews WHERE run_id IN (SELECT id FROM ended)
      ), gone AS (
        DELETE FROM ${schema}.pipeline_runs WHERE id IN (SELECT id FROM ended) RETURNING 1
      ) SELECT count(*)::int AS deleted FROM gone`,
      [limit]
    )
    const deleted = runs?.deleted ?? 0
    return { runs: deleted, more: deleted === RUNS }
  })

  let deleted = 0
  for (let steps = 0; steps < STEPS; steps++) {
    const done = yield* sql.withTransaction(step)
    if (done === undefined) return steps === 0 ? undefined : deleted
    deleted += done.runs
    if (!done.more) break
  }
  return deleted
})

/** Purges every ten minutes. Of several processes one does, and the others see that it is done. */
export const layer = (options: RunRetentionOptions): Layer.Layer<never, never, SqlClient.SqlClient | Tenants> => {
  const keepMillis = Duration.toMillis(options.keep)
  if (keepMillis === 0) return Layer.empty
  return Layer.effectDiscard(
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const tenants = yield* Tenants
      const clock = yield* Clock.Clock
      const schemas = [...new Set(yield* Effect.forEach([publicTenant, ...tenants.slugs], tenants.schemaOf))]
      yield* Effect.suspend(() =>
        Effect.forEach(schemas, (schema) => purgeRuns(schema, clock.currentTimeMillisUnsafe() - keepMillis))
      ).pipe(
        Effect.tap((counts) => {
          const deleted = counts.reduce<number>((sum, count) => sum + (count ?? 0), 0)
          return deleted === 0 ? Effect.void : Effect.logInfo(`${deleted} finished runs of pipelines were removed`)
        }),
        Effect.catchTag("SqlError", (error) => Effect.logWarning("Finished runs could not be removed", error)),
        Effect.provideService(SqlClient.SqlClient, sql),
        Effect.repeat(Schedule.spaced(EVERY)),
        Effect.forkScoped
      )
    })
  )
}
