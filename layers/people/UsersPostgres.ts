import { Effect, Layer } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import { type GatewayError, InvalidRequest, notFound } from "#domain/errors.ts"
import { uuidv7 } from "#domain/ids.ts"
import type { Page, RowCaller, User, UserChange, UserDraft } from "#domain/people.ts"
import { noRole } from "#domain/people.ts"
import { makeChanges } from "#layers/people/Changes.ts"
import {
  auditedLimits,
  changesLimits,
  limitAssignments,
  limitColumns,
  type LimitColumns,
  limitsOf,
  limitValues,
  ownLimits
} from "#layers/people/limits.ts"
import { visibleUsers } from "#layers/people/membership.ts"
import { Users } from "#services/people/Users.ts"
import { orUnavailable } from "#services/storage/outage.ts"
import { cutPage, pageLimit } from "#services/storage/paging.ts"

interface UserRow extends LimitColumns {
  readonly id: string
  readonly tenant: string
  readonly user_email: string | null
  readonly user_role: string
  readonly name: string
  readonly organization_id: string | null
  readonly team_id: string | null
  readonly created_at: Date
  readonly updated_at: Date
}

const userOf = (row: UserRow): User => ({
  id: row.id,
  tenant: row.tenant,
  email: row.user_email,
  role: row.user_role,
  name: row.name,
  organizationId: row.organization_id,
  teamId: row.team_id,
  createdAt: row.created_at.getTime(),
  updatedAt: row.updated_at.getTime(),
  ...ownLimits(row)
})

const emailTaken = new InvalidRequest({
  code: "already_exists",
  message: "A user with this email exists already.",
  param: "user_email"
})

/** The page is cut first, so that memberships are looked up for its rows only. */
const select = (page: Statement.Fragment, sql: SqlClient.SqlClient) =>
  sql<UserRow>`${sql.literal(columns)} FROM (SELECT * FROM users u WHERE ${page}) AS u ORDER BY u.created_at DESC, u.id DESC`

const columns = `SELECT u.id, u.tenant, u.user_email, u.user_role, u.name, u.created_at, u.updated_at, ${limitsOf("u")},
  (SELECT m.organization_id FROM organization_members m WHERE m.user_id = u.id
    ORDER BY m.created_at, m.organization_id LIMIT 1) AS organization_id,
  (SELECT m.team_id FROM team_members m WHERE m.user_id = u.id ORDER BY m.created_at, m.team_id LIMIT 1) AS team_id`

const make = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const { now, ownTenant, ownerChanged, record, requireTier, transaction } = yield* makeChanges
  const visible = (caller: RowCaller): Statement.Fragment => visibleUsers(sql, caller.scope)

  const lock = Effect.fnUntraced(function* (id: string, caller: RowCaller) {
    const [row] = yield* sql<{ readonly tenant: string }>`SELECT u.tenant FROM users u
      WHERE u.id = ${id} AND ${visible(caller)} FOR NO KEY UPDATE`
    return row === undefined ? yield* notFound("user") : row
  })

  const create = Effect.fn("Users.create")(function* (draft: UserDraft, caller: RowCaller) {
    const tenant = yield* ownTenant(caller)
    const at = now()
    const id = uuidv7(at)
    const date = new Date(at)
    return yield* transaction(
      Effect.gen(function* () {
        yield* requireTier(tenant, draft.budgetId)
        const created = yield* sql`INSERT INTO users
          (id, tenant, user_email, user_role, name, ${sql.literal(limitColumns.join(", "))}, created_by, created_at, updated_at)
          VALUES (${id}, ${tenant}, ${draft.email ?? null}, ${draft.role ?? noRole}, ${draft.name},
            ${limitValues(sql, draft)}, ${caller.actor}, ${date}, ${date})
          ON CONFLICT DO NOTHING RETURNING id`
        if (created.length === 0) return yield* emailTaken
        // Whoever is bound to one organization makes users of that organization.
        if (caller.organizationId !== undefined) {
          const [organization] = yield* sql`SELECT 1 FROM organizations WHERE id = ${caller.organizationId}
            AND tenant = ${tenant} AND deleted_at IS NULL FOR SHARE`
          if (organization === undefined) return yield* notFound("organization")
          yield* sql`INSERT INTO organization_members (organization_id, user_id, role, created_at)
            VALUES (${caller.organizationId}, ${id}, 'member', ${date})`
        }
        const payload = { user_role: draft.role ?? noRole, ...auditedLimits(draft) }
        yield* record({ tenant, resource: "user", id, action: "created", payload }, caller)
        const [row] = yield* select(sql`u.id = ${id}`, sql)
        return row === undefined ? yield* Effect.die(new Error("no row came back")) : userOf(row)
      })
    )
  })

  const update = Effect.fn("Users.update")((id: string, change: UserChange, caller: RowCaller) =>
    transaction(
      Effect.gen(function* () {
        const { tenant } = yield* lock(id, caller)
        yield* requireTier(tenant, change.budgetId)
        if (change.email !== undefined && change.email !== null) {
          const others = yield* sql`SELECT 1 FROM users WHERE tenant = ${tenant}
            AND lower(user_email) = lower(${change.email}) AND id <> ${id} AND deleted_at IS NULL`
          if (others.length > 0) return yield* emailTaken
        }
        const role = change.role === null ? noRole : change.role
        yield* sql`UPDATE users SET ${sql.csv([
          ...(change.email === undefined ? [] : [sql`user_email = ${change.email}`]),
          ...(role === undefined ? [] : [sql`user_role = ${role}`]),
          ...(change.name === undefined ? [] : [sql`name = ${change.name}`]),
          ...limitAssignments(sql, change),
          sql`updated_at = ${new Date(now())}`
        ])} WHERE id = ${id}`.pipe(
          // Another transaction took the email between the look and the write.
          Effect.catchIf(
            (error) => error.reason._tag === "UniqueViolation",
            () => Effect.fail(emailTaken)
          )
        )
        if (changesLimits(change)) yield* ownerChanged("user", id)
        const payload = {
          ...(role === undefined ? {} : { user_role: role }),
          ...(change.email === undefined ? {} : { user_email: "replaced" }),
          ...(change.name === undefined ? {} : { name: "replaced" }),
          ...auditedLimits(change)
        }
        yield* record({ tenant, resource: "user", id, action: "updated", payload }, caller)
      })
    )
  )

  const remove = Effect.fn("Users.remove")((id: string, caller: RowCaller) =>
    transaction(
      Effect.gen(function* () {
        const { tenant } = yield* lock(id, caller)
        const at = new Date(now())
        yield* sql`UPDATE users SET deleted_at = ${at}, updated_at = ${at}, budget_id = NULL WHERE id = ${id}`
        yield* sql`DELETE FROM team_members WHERE user_id = ${id}`
        yield* sql`DELETE FROM organization_members WHERE user_id = ${id}`
        yield* ownerChanged("user", id)
        yield* record({ tenant, resource: "user", id, action: "deleted", payload: {} }, caller)
      })
    )
  )

  const find = Effect.fn("Users.find")(function* (
    target: { readonly id: string } | { readonly email: string },
    caller: RowCaller
  ): Effect.fn.Return<User, GatewayError> {
    const named =
      "id" in target
        ? sql`u.id = ${target.id}`
        : sql`u.tenant = ${caller.tenant} AND lower(u.user_email) = lower(${target.email})`
    const [row] = yield* orUnavailable(select(sql`${named} AND ${visible(caller)}`, sql))
    return row === undefined ? yield* notFound("user") : userOf(row)
  })

  const list = Effect.fn("Users.list")((filter: Page & { readonly role?: string }, caller: RowCaller) =>
    select(
      sql`${sql.and([
        visible(caller),
        ...(filter.role === undefined ? [] : [sql`u.user_role = ${filter.role}`])
      ])} ORDER BY u.created_at DESC, u.id DESC
        ${pageLimit(sql, filter)}`,
      sql
    ).pipe(
      Effect.map((rows) => cutPage(rows.map(userOf), filter)),
      orUnavailable
    )
  )

  return Users.of({ create, update, remove, find, list })
})

export const layer = Layer.effect(Users, make)
