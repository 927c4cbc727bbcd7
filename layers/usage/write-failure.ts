import { type Cause, Data } from "effect"
import { SqlError } from "effect/sql"

/**
 * `later`: the same rows may be written when the database is well again. `never`: something about the rows themselves
 * cannot be stored.
 */
export type Remedy = Data.TaggedEnum<{
  Later: { readonly why: string }
  Never: { readonly why: string }
}>
export const Remedy = Data.taggedEnum<Remedy>()

/** SQLSTATE classes that speak of the data: cardinality, data exception, integrity, a program's limit. */
const aboutData = /^(21|22|23|54)/

const messageOf = (value: unknown): string => (value instanceof Error ? value.message : String(value))

const sqlStateOf = (error: SqlError.SqlError): string | undefined => {
  const cause = error.reason.cause
  const code = typeof cause === "object" && cause !== null && "code" in cause ? cause.code : undefined
  return typeof code === "string" ? code : undefined
}

/** The driver could not encode a parameter: it never reached the database. */
const isEncodingFailure = (error: SqlError.SqlError): boolean => {
  const cause = error.reason.cause
  return (
    error.reason._tag === "UnknownError" &&
    typeof cause === "object" &&
    cause !== null &&
    "_tag" in cause &&
    (cause._tag === "PgTypesCodecError" || cause._tag === "PgProtocolEncodeError")
  )
}

/**
 * Tells a failed transaction that will go through later from one that never will. In doubt it is `Later`: a row that is
 * tried for ever makes noise, a row that is put aside for nothing is missing from the books. A rollback on a lost
 * connection turns the driver's failure into a defect, so defects are looked at as well.
 */
export const remedyOf = (cause: Cause.Cause<unknown>): Remedy => {
  const values = cause.reasons.flatMap((reason) =>
    reason._tag === "Fail" ? [reason.error] : reason._tag === "Die" ? [reason.defect] : []
  )
  const sqlErrors = values.filter((value) => value instanceof SqlError.SqlError)
  const [first] = sqlErrors
  if (first === undefined) {
    return values.length === 0 ? Remedy.Later({ why: "interrupted" }) : Remedy.Never({ why: messageOf(values[0]) })
  }
  const why = messageOf(first.reason.cause ?? first)
  const state = sqlStateOf(first)
  const never = sqlErrors.length === values.length && sqlErrors.every(isAboutRows)
  return never ? Remedy.Never({ why: state === undefined ? why : `${why} (${state})` }) : Remedy.Later({ why })
}

const isAboutRows = (error: SqlError.SqlError): boolean => {
  const state = sqlStateOf(error)
  return state === undefined ? isEncodingFailure(error) : aboutData.test(state)
}
