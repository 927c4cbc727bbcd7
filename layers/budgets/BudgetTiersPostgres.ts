import { Clock, Effect, Layer } from "effect"
import { SqlClient, type SqlError, type Statement } from "effect/sql"
import { forbidden, InvalidRequest, notFound } from "#domain/errors.ts"
import type { JsonObject } from "#domain/json.ts"
import { parseBudgetDuration, windowAt } from "#domain/limits.ts"
import { type Nanos } from "#domain/money.ts"
import type { Page, RowCaller } from "#domain/people.ts"
import type { BudgetTier, BudgetTierChange, BudgetTierDraft } from "#domain/tiers.ts"
import { BudgetTiers } from "#services/budgets/BudgetTiers.ts"
import { KeyStore } from "#services/keys/KeyStore.ts"
import { CustomerPolicies } from "#services/people/CustomerPolicies.ts"
import { makeAudit } from "#services/provenance/audit.ts"
import { orUnavailable } from "#services/storage/outage.ts"
import { cutPage, pageLimit } from "#services/storage/paging.ts"
import { inScope, nanosOf, numericOf } from "#services/storage/rows.ts"
import { isProvisioned, Tenants } from "#services/tenants/Tenants.ts"
import { UsageLedger } from "#services/usage/UsageLedger.ts"

interface BudgetRow {
  readonly tenant: string
  readonly budget_id: string
  readonly name: string
  readonly max_budget: string | null
  readonly soft_budget: string | null
  readonly budget_duration: string | null
  readonly rpm_limit: number | null
  readonly tpm_limit: number | null
  readonly created_at: Date
}

const taken = new InvalidRequest({
  code: "already_exists",
  message: "A budget with this id exists already.",
  param: "budget_id"
})

const inUse = new InvalidRequest({
  code: "invalid_state",
  message: "The budget still binds keys, users, teams, organizations or customers: bind them to another one first.",
  param: "budget_id"
})

/** What can be bound to a tier, while it lives. */
const bound = [
  ["api_keys", "discarded_at IS NULL"],
  ["users", "deleted_at IS NULL"],
  ["teams", "deleted_at IS NULL"],
  ["organizations", "deleted_at IS NULL"],
  ["customers", "true"]
] as const

const columns =
  "b.tenant, b.budget_id, b.name, b.max_budget, b.soft_budget, b.budget_duration, b.rpm_limit, b.tpm_limit, b.created_at"

const windowOf = (row: BudgetRow, now: number) => {
  const window = parseBudgetDuration(row.budget_duration ?? "")
  return window === undefined ? undefined : windowAt(window, now)
}

const auditedTier = (change: BudgetTierChange): JsonObject => ({
  ...(change.name === undefined ? {} : { name: change.name }),
  ...(change.maxBudget === undefined ? {} : { max_budget: numericOf(change.maxBudget) }),
  ...(change.softBudget === undefined ? {} : { soft_budget: numericOf(change.softBudget) }),
  ...(change.budgetDuration === undefined ? {} : { budget_duration: change.budgetDuration }),
  ...(change.rpmLimit === undefined ? {} : { rpm_limit: change.rpmLimit }),
  ...(change.tpmLimit === undefined ? {} : { tpm_limit: change.tpmLimit })
})

const make = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const audit = yield* makeAudit
  const tenants = yield* Tenants
  const keys = yield* KeyStore
  const customers = yield* CustomerPolicies
  const usage = yield* UsageLedger
  const clock = yield* Clock.Clock
  const now = () => clock.currentTimeMillisUnsafe()
  const selected = sql.literal(`SELECT ${columns} FROM budgets b`)
  const visible = (caller: RowCaller): Statement.Fragment =>
    inScope(sql, caller.scope, { tenant: "b.tenant", organization: "b.organization_id" })

  const transaction = <A, E>(effect: Effect.Effect<A, E | SqlError.SqlError>) =>
    sql.withTransaction(effect).pipe(orUnavailable)

  const record = (action: string, tenant: string, budgetId: string, payload: JsonObject, caller: RowCaller) =>
    audit({
      tenant,
      action: `budget.${action}`,
      actor: caller.actor,
      resourceType: "budget",
      resourceId: budgetId,
      payload
    })

  /** A tier's id is its tenant's own, so nobody else's is ever meant. */
  const named = (budgetId: string, caller: RowCaller): Statement.Fragment =>
    sql.and([sql`b.tenant = ${caller.tenant}`, sql`b.budget_id = ${budgetId}`, visible(caller)])

  const lock = Effect.fnUntraced(function* (budgetId: string, caller: RowCaller, strength: "UPDATE" | "NO KEY UPDATE") {
    const [row] = yield* sql<BudgetRow>`${selected} WHERE ${named(budgetId, caller)} FOR ${sql.literal(strength)}`
    return row === undefined ? yield* notFound("budget") : row
  })

  /** By tenant and id. */
  const currentSpend = Effect.fnUntraced(function* (rows: ReadonlyArray<BudgetRow>, at: number) {
    if (rows.length === 0) return new Map<string, Nanos>()
    yield* usage.flush
    const spends = yield* sql<{ readonly tenant: string; readonly budget_id: string; readonly spent: bigint }>`
      SELECT u.tenant, u.budget_id, u.spent FROM unnest(
        ${rows.map((row) => row.tenant)}::text[], ${rows.map((row) => row.budget_id)}::text[],
        ${rows.map((row) => String(windowOf(row, at)?.start ?? 0))}::text[]::int8[]
      ) AS t (tenant, budget_id, window_start) JOIN public.budget_usage u USING (tenant, budget_id, window_start)`.pipe(
      orUnavailable
    )
    return new Map(spends.map(({ budget_id, spent, tenant }) => [`${tenant}\n${budget_id}`, spent]))
  })

  const withSpend = Effect.fnUntraced(function* (rows: ReadonlyArray<BudgetRow>) {
    const at = now()
    const spends = yield* currentSpend(rows, at)
    return rows.map((row): BudgetTier => ({
      budgetId: row.budget_id,
      tenant: row.tenant,
      name: row.name,
      maxBudget: nanosOf(row.max_budget),
      softBudget: nanosOf(row.soft_budget),
      budgetDuration: row.budget_duration,
      rpmLimit: row.rpm_limit,
      tpmLimit: row.tpm_limit,
      createdAt: row.created_at.getTime(),
      resetAt: windowOf(row, at)?.end ?? null,
      currentSpend: spends.get(`${row.tenant}\n${row.budget_id}`) ?? 0n
    }))
  })

  const create = Effect.fn("BudgetTiers.create")(function* (draft: BudgetTierDraft, caller: RowCaller) {
    const { tenant } = caller
    if (!isProvisioned(tenants, tenant)) {
      return yield* forbidden("The caller's tenant is not provisioned.")
    }
    const date = new Date(now())
    yield* transaction(
      Effect.gen(function* () {
        const created =
          yield* sql`INSERT INTO budgets (tenant, budget_id, organization_id, name, max_budget, soft_budget,
            budget_duration, rpm_limit, tpm_limit, created_by, created_at, updated_at)
          VALUES (${tenant}, ${draft.budgetId}, ${caller.organizationId ?? null}, ${draft.name ?? ""},
            ${numericOf(draft.maxBudget ?? null)}, ${numericOf(draft.softBudget ?? null)},
            ${draft.budgetDuration ?? null}, ${draft.rpmLimit ?? null}, ${draft.tpmLimit ?? null}, ${caller.actor},
            ${date}, ${date})
          ON CONFLICT DO NOTHING RETURNING budget_id`
        if (created.length === 0) return yield* taken
        yield* record("created", tenant, draft.budgetId, auditedTier(draft), caller)
      })
    )
  })

  const update = Effect.fn("BudgetTiers.update")((budgetId: string, change: BudgetTierChange, caller: RowCaller) =>
    transaction(
      Effect.gen(function* () {
        const { tenant } = yield* lock(budgetId, caller, "NO KEY UPDATE")
        yield* sql`UPDATE budgets SET ${sql.csv([
          ...(change.name === undefined ? [] : [sql`name = ${change.name}`]),
          ...(change.maxBudget === undefined ? [] : [sql`max_budget = ${numericOf(change.maxBudget)}`]),
          ...(change.softBudget === undefined ? [] : [sql`soft_budget = ${numericOf(change.softBudget)}`]),
          ...(change.budgetDuration === undefined ? [] : [sql`budget_duration = ${change.budgetDuration}`]),
          ...(change.rpmLimit === undefined ? [] : [sql`rpm_limit = ${change.rpmLimit}`]),
          ...(change.tpmLimit === undefined ? [] : [sql`tpm_limit = ${change.tpmLimit}`]),
          sql`updated_at = ${new Date(now())}`
        ])} WHERE tenant = ${tenant} AND budget_id = ${budgetId}`
        yield* keys.ownerChanged("budget_tier", budgetId)
        yield* customers.changed("all")
        yield* record("updated", tenant, budgetId, auditedTier(change), caller)
      })
    )
  )

  const remove = Effect.fn("BudgetTiers.remove")((budgetId: string, caller: RowCaller) =>
    transaction(
      Effect.gen(function* () {
        // The strongest lock: whoever is about to bind something to the tier waits, and then finds it gone.
        const { tenant } = yield* lock(budgetId, caller, "UPDATE")
        for (const [table, living] of bound) {
          const rows = yield* sql`SELECT 1 FROM ${sql.literal(table)}
            WHERE tenant = ${tenant} AND budget_id = ${budgetId} AND ${sql.literal(living)} LIMIT 1`
          if (rows.length > 0) return yield* inUse
        }
        yield* sql`UPDATE api_keys SET budget_id = NULL
          WHERE tenant = ${tenant} AND budget_id = ${budgetId} AND discarded_at IS NOT NULL`
        yield* sql`DELETE FROM budgets WHERE tenant = ${tenant} AND budget_id = ${budgetId}`
        yield* record("deleted", tenant, budgetId, {}, caller)
      })
    )
  )

  const find = Effect.fn("BudgetTiers.find")(function* (budgetId: string, caller: RowCaller) {
    const rows = yield* sql<BudgetRow>`${selected} WHERE ${named(budgetId, caller)}`.pipe(orUnavailable)
    const [tier] = yield* withSpend(rows)
    return tier === undefined ? yield* notFound("budget") : tier
  })

  const list = Effect.fn("BudgetTiers.list")(function* (filter: Page, caller: RowCaller) {
    const rows = yield* sql<BudgetRow>`${selected} WHERE ${visible(caller)}
      ORDER BY b.created_at DESC, b.budget_id DESC
      ${pageLimit(sql, filter)}`.pipe(orUnavailable)
    const page = cutPage(rows, filter)
    return { ...page, rows: yield* withSpend(page.rows) }
  })

  return BudgetTiers.of({ create, update, remove, find, list })
})

export const layer = Layer.effect(BudgetTiers, make)
