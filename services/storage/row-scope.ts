import type { SqlClient, Statement } from "effect/sql"
import type { RowScope } from "#domain/principal.ts"
import type { RowOwner } from "#domain/row-owner.ts"

/** The rows that a caller may see, of a table whose `tenant` and `organization_id` are never null. */
export const rowsWithin = (sql: SqlClient.SqlClient, scope: RowScope): Statement.Fragment => {
  // An organization's administrator without an organization must not be taken for the tenant's.
  if (scope.organizationId === "") return sql`false`
  return sql.and([
    sql`true`,
    ...(scope.tenant === undefined ? [] : [sql`tenant = ${scope.tenant}`]),
    ...(scope.organizationId === undefined ? [] : [sql`organization_id = ${scope.organizationId}`])
  ])
}

/** The rows that belong to an owner itself. */
export const rowsOf = (sql: SqlClient.SqlClient, owner: RowOwner): Statement.Fragment =>
  sql`(tenant = ${owner.tenant} AND organization_id = ${owner.organizationId})`
