import { dollarsText } from "#domain/money.ts"
import type { Quota } from "#services/budgets/BudgetLedger.ts"

/** Their names, for those who may only read headers that are named to them. */
export const quotaHeaderNames = [
  "X-Gateway-RateLimit-Limit",
  "X-Gateway-RateLimit-Remaining",
  "X-Gateway-RateLimit-Reset",
  "X-Gateway-TokenLimit-Limit",
  "X-Gateway-TokenLimit-Remaining",
  "X-Gateway-Budget-Remaining"
] as const

/** The six headers of decisions.md, section 5. */
export const quotaHeaders = (quota: Quota): Record<string, string> => ({
  "x-gateway-ratelimit-limit": quota.requests === undefined ? "unlimited" : String(quota.requests.limit),
  "x-gateway-ratelimit-remaining": quota.requests === undefined ? "unlimited" : String(quota.requests.remaining),
  "x-gateway-ratelimit-reset": resetOf(quota),
  "x-gateway-tokenlimit-limit": quota.tokens === undefined ? "unlimited" : String(quota.tokens.limit),
  "x-gateway-tokenlimit-remaining": quota.tokens === undefined ? "unlimited" : String(quota.tokens.remaining),
  "x-gateway-budget-remaining": quota.budgetRemaining === undefined ? "unlimited" : dollarsText(quota.budgetRemaining)
})

const resetOf = (quota: Quota): string => {
  const resetAt = Math.max(quota.requests?.resetAt ?? 0, quota.tokens?.resetAt ?? 0)
  return resetAt === 0 ? "unlimited" : String(Math.ceil(resetAt / 1000))
}
