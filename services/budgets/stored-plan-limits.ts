import type { PlanLimits } from "#domain/tiers.ts"
import { nanosOf, numericOf } from "#services/storage/rows.ts"

/** The `limits` of a row of `plan_tiers`: the fields that were given, money as decimal text. */
export interface StoredPlanLimits {
  readonly max_budget?: string | null
  readonly soft_budget?: string | null
  readonly rpm_limit?: number | null
  readonly tpm_limit?: number | null
  readonly models?: ReadonlyArray<string>
}

export const planLimitsOf = (stored: StoredPlanLimits): PlanLimits => ({
  ...(stored.max_budget === undefined ? {} : { maxBudget: nanosOf(stored.max_budget) }),
  ...(stored.soft_budget === undefined ? {} : { softBudget: nanosOf(stored.soft_budget) }),
  ...(stored.rpm_limit === undefined ? {} : { rpmLimit: stored.rpm_limit }),
  ...(stored.tpm_limit === undefined ? {} : { tpmLimit: stored.tpm_limit }),
  ...(stored.models === undefined ? {} : { models: stored.models })
})

export const storedPlanLimits = (limits: PlanLimits): StoredPlanLimits => ({
  ...(limits.maxBudget === undefined ? {} : { max_budget: numericOf(limits.maxBudget) }),
  ...(limits.softBudget === undefined ? {} : { soft_budget: numericOf(limits.softBudget) }),
  ...(limits.rpmLimit === undefined ? {} : { rpm_limit: limits.rpmLimit }),
  ...(limits.tpmLimit === undefined ? {} : { tpm_limit: limits.tpmLimit }),
  ...(limits.models === undefined ? {} : { models: limits.models })
})
