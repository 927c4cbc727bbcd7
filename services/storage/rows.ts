/** What statements on rows with a tenant and an organization share. */
import type { SqlClient, Statement } from "effect/sql"
import { dollarsText, nanosFromDollars, type Nanos } from "#domain/money.ts"
import type { RowScope } from "#domain/principal.ts"

/** The columns that a scope looks at, ready for SQL. */
export interface ScopeColumns {
  readonly tenant: string
  readonly organization: string
}

/** True for the rows of a scope (decisions.md, section 3). */
export const inScope = (sql: SqlClient.SqlClient, scope: RowScope, columns: ScopeColumns): Statement.Fragment =>
  sql.and([
    sql`true`,
    ...(scope.tenant === undefined ? [] : [sql`${sql.literal(columns.tenant)} = ${scope.tenant}`]),
    ...(scope.organizationId === undefined ? [] : [sql`${sql.literal(columns.organization)} = ${scope.organizationId}`])
  ])

/** Money as a parameter for a `numeric` column. */
export const numericOf = (nanos: Nanos | null): string | null => (nanos === null ? null : dollarsText(nanos))

/** Money from a `numeric` column. */
export const nanosOf = (numeric: string | null): Nanos | null =>
  numeric === null ? null : (nanosFromDollars(numeric) ?? null)
