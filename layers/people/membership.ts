import { Effect } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import { notFound } from "#domain/errors.ts"
import type { RowCaller } from "#domain/people.ts"
import type { RowScope } from "#domain/principal.ts"

/** The living users of a scope; an organization's are its members. The table's alias is `u`. */
export const visibleUsers = (sql: SqlClient.SqlClient, scope: RowScope): Statement.Fragment =>
  sql.and([
    sql`u.deleted_at IS NULL`,
    ...(scope.tenant === undefined ? [] : [sql`u.tenant = ${scope.tenant}`]),
    ...(scope.organizationId === undefined
      ? []
      : [
          sql`EXISTS (SELECT FROM organization_members m
            WHERE m.organization_id = ${scope.organizationId} AND m.user_id = u.id)`
        ])
  ])

/** The role of a member to whom none was given. */
const plainMember = "member"

/** Members of teams or of organizations. */
export const makeMembership = (sql: SqlClient.SqlClient, table: string, column: string) => {
  const members = sql.literal(table)
  const group = sql.literal(column)

  /** Keeps the user from being deleted until the transaction ends. */
  const requireUser = Effect.fnUntraced(function* (userId: string, tenant: string, caller: RowCaller) {
    const [row] = yield* sql`SELECT 1 FROM users u
      WHERE u.id = ${userId} AND u.tenant = ${tenant} AND ${visibleUsers(sql, caller.scope)} FOR SHARE`
    if (row === undefined) return yield* notFound("user")
  })

  return {
    /** Returns the role that the member has now. Without one given, a member keeps its own. */
    add: Effect.fnUntraced(function* (
      id: string,
      tenant: string,
      userId: string,
      role: string | undefined,
      at: number,
      caller: RowCaller
    ) {
      yield* requireUser(userId, tenant, caller)
      const [row] = yield* sql<{
        readonly role: string
      }>`INSERT INTO ${members} AS m (${group}, user_id, role, created_at)
        VALUES (${id}, ${userId}, ${role ?? plainMember}, ${new Date(at)})
        ON CONFLICT (${group}, user_id) DO UPDATE SET role = coalesce(${role ?? null}, m.role) RETURNING role`
      return row?.role ?? plainMember
    }),

    remove: Effect.fnUntraced(function* (id: string, userId: string) {
      const gone = yield* sql`DELETE FROM ${members} WHERE ${group} = ${id} AND user_id = ${userId} RETURNING user_id`
      if (gone.length === 0) return yield* notFound("member")
    }),

    clear: (id: string) => sql`DELETE FROM ${members} WHERE ${group} = ${id}`
  }
}
