import type { SqlClient, Statement } from "effect/sql"
import type { JsonObject } from "#domain/json.ts"
import type { LimitsChange, OwnLimits } from "#domain/people.ts"
import { nanosOf, numericOf } from "#services/storage/rows.ts"

/** The limit columns that users, teams, organizations and customers share. */
export interface LimitColumns {
  readonly max_budget: string | null
  readonly soft_budget: string | null
  readonly rpm_limit: number | null
  readonly tpm_limit: number | null
  readonly models: ReadonlyArray<string>
  readonly budget_id: string | null
}

export const limitColumns = ["max_budget", "soft_budget", "rpm_limit", "tpm_limit", "models", "budget_id"] as const

/** The columns of a table's alias, as a select list has them. */
export const limitsOf = (alias: string): string => limitColumns.map((column) => `${alias}.${column}`).join(", ")

export const ownLimits = (row: LimitColumns): OwnLimits => ({
  maxBudget: nanosOf(row.max_budget),
  softBudget: nanosOf(row.soft_budget),
  rpmLimit: row.rpm_limit,
  tpmLimit: row.tpm_limit,
  models: row.models,
  budgetId: row.budget_id
})

/** Whether a change touches what the owner's calls are bound to. */
export const changesLimits = (change: LimitsChange): boolean => Object.keys(auditedLimits(change)).length > 0

/** The SET list of the limits that are given. */
export const limitAssignments = (sql: SqlClient.SqlClient, change: LimitsChange): ReadonlyArray<Statement.Fragment> => [
  ...(change.maxBudget === undefined ? [] : [sql`max_budget = ${numericOf(change.maxBudget)}`]),
  ...(change.softBudget === undefined ? [] : [sql`soft_budget = ${numericOf(change.softBudget)}`]),
  ...(change.rpmLimit === undefined ? [] : [sql`rpm_limit = ${change.rpmLimit}`]),
  ...(change.tpmLimit === undefined ? [] : [sql`tpm_limit = ${change.tpmLimit}`]),
  ...(change.models === undefined ? [] : [sql`models = ${change.models}`]),
  ...(change.budgetId === undefined ? [] : [sql`budget_id = ${change.budgetId}`])
]

/** The values of a new row, in the order of `limitColumns`. */
export const limitValues = (sql: SqlClient.SqlClient, draft: LimitsChange): Statement.Fragment =>
  sql`${numericOf(draft.maxBudget ?? null)}, ${numericOf(draft.softBudget ?? null)}, ${draft.rpmLimit ?? null},
    ${draft.tpmLimit ?? null}, ${draft.models ?? []}, ${draft.budgetId ?? null}`

/** What an audit entry tells of limits: the new values. */
export const auditedLimits = (change: LimitsChange): JsonObject => ({
  ...(change.maxBudget === undefined ? {} : { max_budget: numericOf(change.maxBudget) }),
  ...(change.softBudget === undefined ? {} : { soft_budget: numericOf(change.softBudget) }),
  ...(change.rpmLimit === undefined ? {} : { rpm_limit: change.rpmLimit }),
  ...(change.tpmLimit === undefined ? {} : { tpm_limit: change.tpmLimit }),
  ...(change.models === undefined ? {} : { models: change.models }),
  ...(change.budgetId === undefined ? {} : { budget_id: change.budgetId })
})
