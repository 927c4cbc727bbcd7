import { Effect, Layer } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import { invalidValue, notFound } from "#domain/errors.ts"
import { uuidv7 } from "#domain/ids.ts"
import { parseBudgetDuration, windowAt } from "#domain/limits.ts"
import type { Nanos } from "#domain/money.ts"
import type { Page, RowCaller, Team, TeamChange, TeamDraft } from "#domain/people.ts"
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
import { AccountSpend, type AccountWindow } from "#services/budgets/AccountSpend.ts"
import { Teams } from "#services/people/Teams.ts"
import { orUnavailable } from "#services/storage/outage.ts"
import { cutPage, pageLimit } from "#services/storage/paging.ts"
import { inScope } from "#services/storage/rows.ts"
import { OwnerSpend } from "#services/usage/OwnerSpend.ts"

interface TeamRow extends LimitColumns {
  readonly id: string
  readonly tenant: string
  readonly team_alias: string
  readonly organization_id: string | null
  readonly organization_alias: string | null
  readonly member_count: number
  readonly blocked: boolean
  readonly budget_duration: string | null
  readonly created_at: Date
}

const teamOf = (row: TeamRow, totalSpend: Nanos, currentSpend: Nanos): Team => ({
  id: row.id,
  tenant: row.tenant,
  alias: row.team_alias,
  organizationId: row.organization_id,
  organizationAlias: row.organization_alias,
  memberCount: row.member_count,
  blocked: row.blocked,
  totalSpend,
  currentSpend,
  createdAt: row.created_at.getTime(),
  ...ownLimits(row)
})

/** The page is cut before anything is joined to it, so that members are counted for its rows only. */
const select = (page: Statement.Fragment, sql: SqlClient.SqlClient) =>
  sql<TeamRow>`SELECT t.id, t.tenant, t.team_alias, t.organization_id, t.blocked, t.created_at,
    ${sql.literal(limitsOf("t"))}, o.organization_alias, b.budget_duration,
    (SELECT count(*)::int FROM team_members m WHERE m.team_id = t.id) AS member_count
    FROM (SELECT * FROM teams t WHERE t.deleted_at IS NULL AND ${page}) AS t
    LEFT JOIN organizations o ON o.id = t.organization_id
    LEFT JOIN budgets b ON b.tenant = t.tenant AND b.budget_id = t.budget_id
    ORDER BY t.created_at DESC, t.id DESC`

const make = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const ownerSpend = yield* OwnerSpend
  const accountSpend = yield* AccountSpend
  const changes = yield* makeChanges
  const { now, ownTenant, ownerChanged, record, requireTier, transaction } = changes
  const visible = (caller: RowCaller): Statement.Fragment =>
    inScope(sql, caller.scope, { tenant: "t.tenant", organization: "t.organization_id" })

  const lock = Effect.fnUntraced(function* (id: string, caller: RowCaller, strength: "NO KEY UPDATE" | "SHARE") {
    const [row] = yield* sql<RowOwner>`SELECT t.tenant, t.organization_id AS "organizationId" FROM teams t
      WHERE t.id = ${id} AND t.deleted_at IS NULL AND ${visible(caller)} FOR ${sql.literal(strength)}`
    return row === undefined ? yield* notFound("team") : row
  })

  const members = makeMembership(sql, changes, {
    service: "Teams",
    resource: "team",
    table: "team_members",
    column: "team_id",
    lock
  })

  /** The account of a team's budget where that starts anew, in its current window (domain/policy-chain.ts). */
  const accountOf = (row: TeamRow): AccountWindow | undefined => {
    const window = parseBudgetDuration(row.budget_duration ?? "")
    return window === undefined
      ? undefined
      : { account: `budget:team:${row.id}@${row.budget_duration}`, windowStart: windowAt(window, now()).start }
  }

  const withSpend = Effect.fnUntraced(function* (rows: ReadonlyArray<TeamRow>) {
    const totals = yield* ownerSpend.totals("team", rows)
    const accounts = rows.map(accountOf)
    const asked = accounts.filter((account) => account !== undefined)
    const spent = yield* accountSpend.spent(asked)
    const current = new Map(asked.map(({ account }, at) => [account, spent[at] ?? 0n]))
    return rows.map((row, at) => {
      const total = totals[at] ?? 0n
      const account = accounts[at]
      return teamOf(row, total, account === undefined ? total : (current.get(account.account) ?? 0n))
    })
  })

  /** The organization of a new team: the named one, or the caller's own. Keeps it from being deleted meanwhile. */
  const organizationFor = Effect.fnUntraced(function* (draft: TeamDraft, tenant: string, caller: RowCaller) {
    const id = draft.organizationId ?? caller.organizationId
    if (id === undefined) return null
    const [row] = yield* sql`SELECT 1 FROM organizations o WHERE o.id = ${id} AND o.tenant = ${tenant}
      AND o.deleted_at IS NULL AND ${inScope(sql, caller.scope, { tenant: "o.tenant", organization: "o.id" })} FOR SHARE`
    return row === undefined ? yield* invalidValue("organization_id", "There is no such organization.") : id
  })

  const create = Effect.fn("Teams.create")(function* (draft: TeamDraft, caller: RowCaller) {
    const tenant = yield* ownTenant(caller)
    const at = now()
    const id = uuidv7(at)
    const date = new Date(at)
    yield* transaction(
      Effect.gen(function* () {
        const organizationId = yield* organizationFor(draft, tenant, caller)
        yield* requireTier(tenant, draft.budgetId)
        yield* sql`INSERT INTO teams
          (id, tenant, team_alias, organization_id, ${sql.literal(limitColumns.join(", "))}, created_by, created_at, updated_at)
          VALUES (${id}, ${tenant}, ${draft.alias}, ${organizationId}, ${limitValues(sql, draft)}, ${caller.actor},
            ${date}, ${date})`
        const payload = { team_alias: draft.alias, organization_id: organizationId, ...auditedLimits(draft) }
        yield* record({ tenant, organizationId, resource: "team", id, action: "created", payload }, caller)
      })
    )
    return id
  })

  const update = Effect.fn("Teams.update")((id: string, change: TeamChange, caller: RowCaller) =>
    transaction(
      Effect.gen(function* () {
        const team = yield* lock(id, caller, "NO KEY UPDATE")
        yield* requireTier(team.tenant, change.budgetId)
        yield* sql`UPDATE teams SET ${sql.csv([
          ...(change.alias === undefined ? [] : [sql`team_alias = ${change.alias}`]),
          ...limitAssignments(sql, change),
          sql`updated_at = ${new Date(now())}`
        ])} WHERE id = ${id}`
        if (changesLimits(change)) yield* ownerChanged("team", id)
        const payload = {
          ...(change.alias === undefined ? {} : { team_alias: change.alias }),
          ...auditedLimits(change)
        }
        yield* record({ ...team, resource: "team", id, action: "updated", payload }, caller)
      })
    )
  )

  const setBlocked = Effect.fn("Teams.setBlocked")((id: string, blocked: boolean, caller: RowCaller) =>
    transaction(
      Effect.gen(function* () {
        const team = yield* lock(id, caller, "NO KEY UPDATE")
        yield* sql`UPDATE teams SET blocked = ${blocked}, updated_at = ${new Date(now())} WHERE id = ${id}`
        yield* ownerChanged("team", id)
        const action = blocked ? "blocked" : "unblocked"
        yield* record({ ...team, resource: "team", id, action, payload: {} }, caller)
      })
    )
  )

  const remove = Effect.fn("Teams.remove")((id: string, caller: RowCaller) =>
    transaction(
      Effect.gen(function* () {
        const team = yield* lock(id, caller, "NO KEY UPDATE")
        const at = new Date(now())
        yield* sql`UPDATE teams SET deleted_at = ${at}, updated_at = ${at}, budget_id = NULL WHERE id = ${id}`
        yield* members.clear(id)
        yield* ownerChanged("team", id)
        yield* record({ ...team, resource: "team", id, action: "deleted", payload: {} }, caller)
      })
    )
  )

  const find = Effect.fn("Teams.find")(function* (id: string, caller: RowCaller) {
    const rows = yield* orUnavailable(select(sql`${sql.and([sql`t.id = ${id}`, visible(caller)])}`, sql))
    const [team] = yield* withSpend(rows)
    return team === undefined ? yield* notFound("team") : team
  })

  const list = Effect.fn("Teams.list")(function* (
    filter: Page & { readonly organizationId?: string },
    caller: RowCaller
  ) {
    const page = sql`${sql.and([
      visible(caller),
      ...(filter.organizationId === undefined ? [] : [sql`t.organization_id = ${filter.organizationId}`])
    ])} ORDER BY t.created_at DESC, t.id DESC
      ${pageLimit(sql, filter)}`
    const rows = yield* orUnavailable(select(page, sql))
    const cut = cutPage(rows, filter)
    return { ...cut, rows: yield* withSpend(cut.rows) }
  })

  return Teams.of({
    create,
    update,
    setBlocked,
    remove,
    find,
    list,
    addMember: members.add,
    removeMember: members.remove
  })
})

export const layer = Layer.effect(Teams, make)
