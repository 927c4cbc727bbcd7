import { Effect, Layer } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import { InvalidRequest, invalidValue, notFound } from "#domain/errors.ts"
import { uuidv7 } from "#domain/ids.ts"
import type { Nanos } from "#domain/money.ts"
import type { Customer, CustomerChange, CustomerDraft, CustomerTarget, Page, RowCaller } from "#domain/people.ts"
import { makeChanges } from "#layers/people/Changes.ts"
import {
  auditedLimits,
  limitAssignments,
  limitColumns,
  type LimitColumns,
  limitsOf,
  limitValues,
  ownLimits
} from "#layers/people/limits.ts"
import { CustomerPolicies } from "#services/people/CustomerPolicies.ts"
import { Customers } from "#services/people/Customers.ts"
import { orUnavailable } from "#services/storage/outage.ts"
import { cutPage, pageLimit } from "#services/storage/paging.ts"
import { inScope } from "#services/storage/rows.ts"
import { OwnerSpend } from "#services/usage/OwnerSpend.ts"

interface CustomerRow extends LimitColumns {
  readonly id: string
  readonly tenant: string
  readonly organization_id: string | null
  readonly end_user_id: string
  readonly end_user_name: string | null
  readonly blocked: boolean
  readonly created_at: Date
}

type NamedRow = Pick<CustomerRow, "id" | "tenant" | "organization_id" | "end_user_id">

const customerOf = (row: CustomerRow, totalSpend: Nanos): Customer => ({
  id: row.id,
  tenant: row.tenant,
  organizationId: row.organization_id,
  endUserId: row.end_user_id,
  endUserName: row.end_user_name,
  blocked: row.blocked,
  totalSpend,
  createdAt: row.created_at.getTime(),
  ...ownLimits(row)
})

const taken = new InvalidRequest({
  code: "already_exists",
  message: "This end user is a customer already.",
  param: "end_user_id"
})

const ambiguous = invalidValue("end_user_id", "Several customers have this end_user_id: name one by its id.")

const make = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const policies = yield* CustomerPolicies
  const ownerSpend = yield* OwnerSpend
  const { now, ownTenant, record, requireTier, transaction } = yield* makeChanges
  const visible = (caller: RowCaller): Statement.Fragment =>
    inScope(sql, caller.scope, { tenant: "c.tenant", organization: "c.organization_id" })

  const locked = (named: Statement.Fragment, caller: RowCaller) =>
    sql<NamedRow>`SELECT c.id, c.tenant, c.organization_id, c.end_user_id FROM customers c
      WHERE ${named} AND ${visible(caller)} ORDER BY c.organization_id NULLS FIRST LIMIT 2 FOR NO KEY UPDATE`

  /** The tenant's own customer of that name, or else the one that some organization has. */
  const byEndUser = (endUserId: string, caller: RowCaller) =>
    Effect.flatMap(locked(sql`c.tenant = ${caller.tenant} AND c.end_user_id = ${endUserId}`, caller), ([row, other]) =>
      other !== undefined && row?.organization_id !== null ? Effect.fail(ambiguous) : Effect.succeed(row)
    )

  const lock = Effect.fnUntraced(function* (target: CustomerTarget, caller: RowCaller) {
    const byId = (id: string) => Effect.map(locked(sql`c.id = ${id}`, caller), ([row]) => row)
    const row =
      target.id !== undefined
        ? yield* byId(target.id)
        : target.endUserId !== undefined
          ? yield* byEndUser(target.endUserId, caller)
          : ((yield* byId(target.either)) ?? (yield* byEndUser(target.either, caller)))
    return row === undefined ? yield* notFound("customer") : row
  })

  const announce = (row: NamedRow) => policies.changed({ tenant: row.tenant, id: row.end_user_id })

  const create = Effect.fn("Customers.create")(function* (draft: CustomerDraft, caller: RowCaller) {
    const tenant = yield* ownTenant(caller)
    const at = now()
    const id = uuidv7(at)
    const date = new Date(at)
    const organizationId = caller.organizationId ?? null
    yield* transaction(
      Effect.gen(function* () {
        if (organizationId !== null) {
          const [organization] = yield* sql`SELECT 1 FROM organizations
            WHERE id = ${organizationId} AND tenant = ${tenant} AND deleted_at IS NULL FOR SHARE`
          if (organization === undefined)
            return yield* invalidValue("organization_id", "There is no such organization.")
        }
        yield* requireTier(tenant, draft.budgetId)
        const created = yield* sql`INSERT INTO customers
          (id, tenant, organization_id, end_user_id, end_user_name, ${sql.literal(limitColumns.join(", "))}, created_by, created_at, updated_at)
          VALUES (${id}, ${tenant}, ${organizationId}, ${draft.endUserId}, ${draft.endUserName ?? null},
            ${limitValues(sql, draft)}, ${caller.actor}, ${date}, ${date})
          ON CONFLICT DO NOTHING RETURNING id`
        if (created.length === 0) return yield* taken
        yield* announce({ id, tenant, organization_id: organizationId, end_user_id: draft.endUserId })
        const payload = auditedLimits(draft)
        yield* record({ tenant, organizationId, resource: "customer", id, action: "created", payload }, caller)
      })
    )
    return id
  })

  const update = Effect.fn("Customers.update")((target: CustomerTarget, change: CustomerChange, caller: RowCaller) =>
    transaction(
      Effect.gen(function* () {
        const row = yield* lock(target, caller)
        yield* requireTier(row.tenant, change.budgetId)
        yield* sql`UPDATE customers SET ${sql.csv([
          ...(change.endUserName === undefined ? [] : [sql`end_user_name = ${change.endUserName}`]),
          ...(change.blocked === undefined ? [] : [sql`blocked = ${change.blocked}`]),
          ...limitAssignments(sql, change),
          sql`updated_at = ${new Date(now())}`
        ])} WHERE id = ${row.id}`
        yield* announce(row)
        const payload = {
          ...(change.endUserName === undefined ? {} : { end_user_name: "replaced" }),
          ...(change.blocked === undefined ? {} : { blocked: change.blocked }),
          ...auditedLimits(change)
        }
        yield* record({ ...deed(row), resource: "customer", id: row.id, action: "updated", payload }, caller)
      })
    )
  )

  const remove = Effect.fn("Customers.remove")((target: CustomerTarget, caller: RowCaller) =>
    transaction(
      Effect.gen(function* () {
        const row = yield* lock(target, caller)
        yield* sql`DELETE FROM customers WHERE id = ${row.id}`
        yield* announce(row)
        yield* record({ ...deed(row), resource: "customer", id: row.id, action: "deleted", payload: {} }, caller)
      })
    )
  )

  const list = Effect.fn("Customers.list")(function* (filter: Page, caller: RowCaller) {
    const rows = yield* sql<CustomerRow>`SELECT c.id, c.tenant, c.organization_id, c.end_user_id, c.end_user_name,
      c.blocked, c.created_at, ${sql.literal(limitsOf("c"))} FROM customers c WHERE ${visible(caller)}
      ORDER BY c.created_at DESC, c.id DESC
      ${pageLimit(sql, filter)}`.pipe(orUnavailable)
    const page = cutPage(rows, filter)
    const totals = yield* ownerSpend.totals(
      "customer",
      page.rows.map(({ end_user_id: id, organization_id: organizationId, tenant }) => ({
        tenant,
        id,
        ...(organizationId === null ? {} : { organizationId })
      }))
    )
    return { ...page, rows: page.rows.map((row, at) => customerOf(row, totals[at] ?? 0n)) }
  })

  return Customers.of({ create, update, remove, list })
})

const deed = (row: NamedRow) => ({ tenant: row.tenant, organizationId: row.organization_id })

export const layer = Layer.effect(Customers, make)
