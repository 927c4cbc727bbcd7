import { Effect, Layer } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import { forbidden, notFound } from "#domain/errors.ts"
import { uuidv7 } from "#domain/ids.ts"
import type { JsonObject } from "#domain/json.ts"
import type { Nanos } from "#domain/money.ts"
import type { Organization, OrganizationChange, OrganizationDraft, Page, RowCaller } from "#domain/people.ts"
import { makeApplyTier } from "#layers/people/apply-tier.ts"
import { makeChanges, type RowOwner } from "#layers/people/Changes.ts"
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
import { makeMembership } from "#layers/people/membership.ts"
import { Organizations } from "#services/people/Organizations.ts"
import { orUnavailable } from "#services/storage/outage.ts"
import { cutPage, pageLimit } from "#services/storage/paging.ts"
import { inScope } from "#services/storage/rows.ts"
import { OwnerSpend } from "#services/usage/OwnerSpend.ts"

interface OrganizationRow extends LimitColumns {
  readonly id: string
  readonly tenant: string
  readonly organization_alias: string
  readonly metadata: JsonObject
  readonly member_count: number
  readonly team_count: number
  readonly created_at: Date
}

const organizationOf = (row: OrganizationRow, totalSpend: Nanos): Organization => ({
  id: row.id,
  tenant: row.tenant,
  alias: row.organization_alias,
  metadata: row.metadata,
  memberCount: row.member_count,
  teamCount: row.team_count,
  totalSpend,
  createdAt: row.created_at.getTime(),
  ...ownLimits(row)
})

/** The page is cut first, so that members and teams are counted for its rows only. */
const select = (page: Statement.Fragment, sql: SqlClient.SqlClient) =>
  sql<OrganizationRow>`SELECT o.id, o.tenant, o.organization_alias, o.metadata, o.created_at,
    ${sql.literal(limitsOf("o"))},
    (SELECT count(*)::int FROM organization_members m WHERE m.organization_id = o.id) AS member_count,
    (SELECT count(*)::int FROM teams t WHERE t.organization_id = o.id AND t.deleted_at IS NULL) AS team_count
    FROM (SELECT * FROM organizations o WHERE o.deleted_at IS NULL AND ${page}) AS o
    ORDER BY o.created_at DESC, o.id DESC`

const ownLimitsForbidden = forbidden("An organization's administrator may not set what binds the organization.")

/** Whoever is bound by an organization's limits must not be the one who sets them. */
const requireOverseer = (caller: RowCaller) => (caller.organizationId === undefined ? Effect.void : forbidden())

const make = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const ownerSpend = yield* OwnerSpend
  const changes = yield* makeChanges
  const { now, ownTenant, ownerChanged, record, requireTier, transaction } = changes
  const visible = (caller: RowCaller): Statement.Fragment =>
    inScope(sql, caller.scope, { tenant: "o.tenant", organization: "o.id" })

  const lock = Effect.fnUntraced(function* (id: string, caller: RowCaller, strength: "NO KEY UPDATE" | "SHARE") {
    const [row] = yield* sql<RowOwner>`SELECT o.tenant, o.id AS "organizationId" FROM organizations o
      WHERE o.id = ${id} AND o.deleted_at IS NULL AND ${visible(caller)} FOR ${sql.literal(strength)}`
    return row === undefined ? yield* notFound("organization") : row
  })

  const members = makeMembership(sql, changes, {
    service: "Organizations",
    resource: "organization",
    table: "organization_members",
    column: "organization_id",
    lock
  })

  const withSpend = Effect.fnUntraced(function* (rows: ReadonlyArray<OrganizationRow>) {
    const totals = yield* ownerSpend.totals(
      "organization",
      rows.map(({ id, tenant }) => ({ id, tenant }))
    )
    return rows.map((row, at) => organizationOf(row, totals[at] ?? 0n))
  })

  const create = Effect.fn("Organizations.create")(function* (draft: OrganizationDraft, caller: RowCaller) {
    yield* requireOverseer(caller)
    const tenant = yield* ownTenant(caller)
    const at = now()
    const id = uuidv7(at)
    const date = new Date(at)
    yield* transaction(
      Effect.gen(function* () {
        yield* requireTier(tenant, draft.budgetId)
        yield* sql`INSERT INTO organizations
          (id, tenant, organization_alias, metadata, ${sql.literal(limitColumns.join(", "))}, created_by, created_at, updated_at)
          VALUES (${id}, ${tenant}, ${draft.alias}, ${JSON.stringify(draft.metadata ?? {})}, ${limitValues(sql, draft)},
            ${caller.actor}, ${date}, ${date})`
        const payload = { organization_alias: draft.alias, ...auditedLimits(draft) }
        yield* record({ tenant, organizationId: id, resource: "organization", id, action: "created", payload }, caller)
      })
    )
    return id
  })

  const update = Effect.fn("Organizations.update")((id: string, change: OrganizationChange, caller: RowCaller) =>
    transaction(
      Effect.gen(function* () {
        const { tenant } = yield* lock(id, caller, "NO KEY UPDATE")
        if (caller.organizationId !== undefined && changesLimits(change)) return yield* ownLimitsForbidden
        yield* requireTier(tenant, change.budgetId)
        yield* sql`UPDATE organizations SET ${sql.csv([
          ...(change.alias === undefined ? [] : [sql`organization_alias = ${change.alias}`]),
          ...(change.metadata === undefined ? [] : [sql`metadata = ${JSON.stringify(change.metadata)}`]),
          ...limitAssignments(sql, change),
          sql`updated_at = ${new Date(now())}`
        ])} WHERE id = ${id}`
        if (changesLimits(change)) yield* ownerChanged("organization", id)
        const payload = {
          ...(change.alias === undefined ? {} : { organization_alias: change.alias }),
          ...(change.metadata === undefined ? {} : { metadata: "replaced" }),
          ...auditedLimits(change)
        }
        yield* record({ tenant, organizationId: id, resource: "organization", id, action: "updated", payload }, caller)
      })
    )
  )

  const remove = Effect.fn("Organizations.remove")((id: string, caller: RowCaller) =>
    transaction(
      Effect.gen(function* () {
        const { tenant } = yield* lock(id, caller, "NO KEY UPDATE")
        yield* requireOverseer(caller)
        const at = new Date(now())
        yield* sql`UPDATE organizations SET deleted_at = ${at}, updated_at = ${at}, budget_id = NULL WHERE id = ${id}`
        yield* members.clear(id)
        yield* ownerChanged("organization", id)
        yield* record(
          { tenant, organizationId: id, resource: "organization", id, action: "deleted", payload: {} },
          caller
        )
      })
    )
  )

  const find = Effect.fn("Organizations.find")(function* (id: string, caller: RowCaller) {
    const rows = yield* orUnavailable(select(sql`${sql.and([sql`o.id = ${id}`, visible(caller)])}`, sql))
    const [organization] = yield* withSpend(rows)
    return organization === undefined ? yield* notFound("organization") : organization
  })

  const list = Effect.fn("Organizations.list")(function* (filter: Page, caller: RowCaller) {
    const page = sql`${visible(caller)} ORDER BY o.created_at DESC, o.id DESC
      ${pageLimit(sql, filter)}`
    const rows = yield* orUnavailable(select(page, sql))
    const cut = cutPage(rows, filter)
    return { ...cut, rows: yield* withSpend(cut.rows) }
  })

  const applyTier = makeApplyTier(sql, changes, lock)

  return Organizations.of({
    create,
    update,
    remove,
    find,
    list,
    addMember: members.add,
    removeMember: members.remove,
    applyTier
  })
})

export const layer = Layer.effect(Organizations, make)
