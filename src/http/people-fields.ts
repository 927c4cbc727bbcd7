/** What the handlers of people and tiers share: fields of the wire to those of the domain and back. */
import { Effect } from "effect"
import { ManagementCaller } from "#api/access.ts"
import { defaultPageSize } from "#api/fields.ts"
import { dollarsNumber, nanosFromDollars, type Nanos } from "#domain/money.ts"
import { type LimitsChange, type OwnLimits, type Page, rowCallerOf } from "#domain/people.ts"
import type { PlanLimits } from "#domain/tiers.ts"
import { isGiven } from "#http/row-owner.ts"

/** The attested caller, as the services of people take it. */
export const rowCaller = Effect.map(ManagementCaller, rowCallerOf)

export const dollarsOf = (nanos: Nanos | null): number | null => (nanos === null ? null : dollarsNumber(nanos))

export const nanosOf = (dollars: number | null): Nanos | null =>
  dollars === null ? null : (nanosFromDollars(dollars) ?? null)

/** A text that says something, or null. */
export const textOrNull = (text: string | null | undefined): string | null => (isGiven(text) ? text : null)

interface PlanFields {
  readonly max_budget?: number | null
  readonly soft_budget?: number | null
  readonly rpm_limit?: number | null
  readonly tpm_limit?: number | null
  readonly models?: ReadonlyArray<string> | null
}

export const planLimitsOf = (fields: PlanFields): PlanLimits => ({
  ...(fields.max_budget === undefined ? {} : { maxBudget: nanosOf(fields.max_budget) }),
  ...(fields.soft_budget === undefined ? {} : { softBudget: nanosOf(fields.soft_budget) }),
  ...(fields.rpm_limit === undefined ? {} : { rpmLimit: fields.rpm_limit }),
  ...(fields.tpm_limit === undefined ? {} : { tpmLimit: fields.tpm_limit }),
  ...(fields.models === undefined ? {} : { models: [...new Set(fields.models)] })
})

/** The limits that a body gives; null and, of a tier's id, the empty text clear. */
export const limitsOf = (fields: PlanFields & { readonly budget_id?: string | null }): LimitsChange => ({
  ...planLimitsOf(fields),
  ...(fields.budget_id === undefined ? {} : { budgetId: textOrNull(fields.budget_id) })
})

export const shownPlanLimits = (limits: Required<PlanLimits>) => ({
  max_budget: dollarsOf(limits.maxBudget),
  soft_budget: dollarsOf(limits.softBudget),
  rpm_limit: limits.rpmLimit,
  tpm_limit: limits.tpmLimit,
  models: limits.models
})

export const shownLimits = (limits: OwnLimits) => ({ ...shownPlanLimits(limits), budget_id: limits.budgetId })

export const pageOf = (
  query: { readonly page?: number; readonly page_size?: number },
  pageSize: number = defaultPageSize
): Page => ({ page: query.page ?? 1, pageSize: query.page_size ?? pageSize })
