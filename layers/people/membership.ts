import { Effect } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import { notFound } from "#domain/errors.ts"
import type { RowCaller } from "#domain/people.ts"
import type { RowScope } from "#domain/principal.ts"
import type { Changes, Deed, Lock } from "#layers/people/Changes.ts"

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

/** What people are members of. */
export interface MemberGroups {
  /** As spans name it. */
  readonly service: string
  readonly resource: Deed["resource"]
  /** The table of the members. */
  readonly table: string
  /** Its column of the group's id. */
  readonly column: string
  readonly lock: Lock
}

/** Members of teams or of organizations. */
export const makeMembership = (
  sql: SqlClient.SqlClient,
  { now, record, transaction }: Changes,
  { column, lock, resource, service, table }: MemberGroups
) => {
  const members = sql.literal(table)
  const group = sql.literal(column)

  /** Keeps the user from being deleted until the transaction ends. */
  const requireUser = Effect.fnUntraced(function* (userId: string, tenant: string, caller: RowCaller) {
    const [row] = yield* sql`SELECT 1 FROM users u
      WHERE u.id = ${userId} AND u.tenant = ${tenant} AND ${visibleUsers(sql, caller.scope)} FOR SHARE`
    if (row === undefined) return yield* notFound("user")
  })

  /** Returns the role that the member has now. Without one given, a member keeps its own. */
  const put = Effect.fnUntraced(function* (id: string, userId: string, role: string | undefined) {
    const [row] = yield* sql<{
      readonly role: string
    }>`INSERT INTO ${members} AS m (${group}, user_id, role, created_at)
      VALUES (${id}, ${userId}, ${role ?? plainMember}, ${new Date(now())})
      ON CONFLICT (${group}, user_id) DO UPDATE SET role = coalesce(${role ?? null}, m.role) RETURNING role`
    return row?.role ?? plainMember
  })

  return {
    add: Effect.fn(`${service}.addMember`)((id: string, userId: string, role: string | undefined, caller: RowCaller) =>
      transaction(
        Effect.gen(function* () {
          const owner = yield* lock(id, caller, "SHARE")
          yield* requireUser(userId, owner.tenant, caller)
          const payload = { user_id: userId, role: yield* put(id, userId, role) }
          yield* record({ ...owner, resource, id, action: "member_added", payload }, caller)
        })
      )
    ),

    remove: Effect.fn(`${service}.removeMember`)((id: string, userId: string, caller: RowCaller) =>
      transaction(
        Effect.gen(function* () {
          const owner = yield* lock(id, caller, "SHARE")
          const gone =
            yield* sql`DELETE FROM ${members} WHERE ${group} = ${id} AND user_id = ${userId} RETURNING user_id`
          if (gone.length === 0) return yield* notFound("member")
          yield* record({ ...owner, resource, id, action: "member_removed", payload: { user_id: userId } }, caller)
        })
      )
    ),

    /** Within a transaction of the caller's. */
    clear: (id: string) => sql`DELETE FROM ${members} WHERE ${group} = ${id}`
  }
}
