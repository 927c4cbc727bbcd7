import { type Cause, Effect } from "effect"
import { SqlError } from "effect/sql"
import { databaseUnavailable, Unavailable } from "#domain/errors.ts"

/** Faults of the statement or its data. Everything else that a statement fails with is the database's state. */
const ownFaults: ReadonlySet<string> = new Set([
  "UniqueViolation",
  "ConstraintError",
  "SqlSyntaxError",
  "AuthorizationError"
])

/** SQLSTATE classes that speak of the data or the statement: cardinality, data exception, integrity, syntax, limits. */
const ownFaultStates = /^(21|22|23|42|54)/

const isOutage = (error: SqlError.SqlError): boolean => {
  if (ownFaults.has(error.reason._tag)) return false
  if (error.reason._tag !== "UnknownError") return true
  const cause = error.reason.cause
  const state = typeof cause === "object" && cause !== null && "code" in cause ? cause.code : undefined
  if (typeof state === "string") return !ownFaultStates.test(state)
  // The driver could not encode a parameter: it never reached the database.
  return !(typeof cause === "object" && cause !== null && "_tag" in cause && String(cause._tag).startsWith("Pg"))
}

/**
 * Turns a database that cannot be asked into `database_unavailable`, with the cause kept for the log. A statement that
 * is wrong by itself is a defect. A rollback on a lost connection turns the failure into a defect, so those are looked
 * at as well.
 */
export const orUnavailable = <A, E, R>(
  effect: Effect.Effect<A, E, R>
): Effect.Effect<A, Exclude<E, SqlError.SqlError> | Unavailable, R> =>
  Effect.catchCause(effect, (cause): Effect.Effect<never, Exclude<E, SqlError.SqlError> | Unavailable> => {
    const errors = cause.reasons.flatMap((reason): ReadonlyArray<SqlError.SqlError> => {
      const value: unknown = reason._tag === "Fail" ? reason.error : reason._tag === "Die" ? reason.defect : undefined
      return value instanceof SqlError.SqlError ? [value] : []
    })
    const [first] = errors
    if (first === undefined) return Effect.failCause(cause as Cause.Cause<Exclude<E, SqlError.SqlError>>)
    if (!errors.some(isOutage)) return Effect.die(first)
    const { code, message, retryAfter } = databaseUnavailable
    return Effect.fail(Object.assign(new Unavailable({ code, message, retryAfter }), { cause: first }))
  })
