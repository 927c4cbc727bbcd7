import { Clock, Effect, Layer, Schedule } from "effect"
import { SqlClient } from "effect/sql"

/** Rows of one statement, so that no sweep locks many or runs long. */
const BATCH = 1_000
const EVERY = "10 minutes"

/**
 * Removes what has expired: kept answers, which hold sealed keys that nobody may ask for any more, and sessions a week
 * after their end. Several processes may sweep at once; each skips the rows that another one holds.
 */
export const layer: Layer.Layer<never, never, SqlClient.SqlClient> = Layer.effectDiscard(
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const clock = yield* Clock.Clock
    const sweep = (table: string, before: number) =>
      sql`DELETE FROM ${sql.literal(table)} WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM ${sql.literal(table)} WHERE expires_at < ${new Date(before)}
        LIMIT ${BATCH}::int FOR UPDATE SKIP LOCKED)) RETURNING 1`.pipe(
        Effect.repeat({ while: (rows) => rows.length === BATCH })
      )
    yield* Effect.suspend(() => {
      const now = clock.currentTimeMillisUnsafe()
      return Effect.andThen(
        sweep("public.developer_idempotency", now),
        sweep("public.developer_sessions", now - 7 * 24 * 60 * 60 * 1000)
      )
    }).pipe(
      Effect.catchTag("SqlError", (error) =>
        Effect.logWarning("Expired sessions and answers could not be removed", error)
      ),
      Effect.repeat(Schedule.spaced(EVERY)),
      Effect.forkScoped
    )
  })
)
