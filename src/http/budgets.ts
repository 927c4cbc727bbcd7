import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { Api } from "#api/Api.ts"
import { undocumentedPageSize } from "#api/people-fields.ts"
import { instantText } from "#domain/instants.ts"
import { dollarsNumber } from "#domain/money.ts"
import type { BudgetTier, BudgetTierChange } from "#domain/tiers.ts"
import { dollarsOf, nanosOf, pageOf, rowCaller } from "#http/people-fields.ts"
import { BudgetTiers } from "#services/budgets/BudgetTiers.ts"

const shown = (tier: BudgetTier) => ({
  id: tier.budgetId,
  budget_id: tier.budgetId,
  name: tier.name.trim() === "" ? "unnamed" : tier.name,
  max_budget: dollarsOf(tier.maxBudget),
  soft_budget: dollarsOf(tier.softBudget),
  duration: tier.budgetDuration,
  budget_duration: tier.budgetDuration,
  rpm_limit: tier.rpmLimit,
  tpm_limit: tier.tpmLimit,
  reset_at: tier.resetAt === null ? null : instantText(tier.resetAt),
  current_spend: dollarsNumber(tier.currentSpend),
  created_at: instantText(tier.createdAt)
})

const changeOf = (payload: {
  readonly name?: string | null
  readonly max_budget?: number | null
  readonly soft_budget?: number | null
  readonly budget_duration?: string | null
  readonly rpm_limit?: number | null
  readonly tpm_limit?: number | null
}): BudgetTierChange => ({
  ...(payload.name === undefined ? {} : { name: payload.name ?? "" }),
  ...(payload.max_budget === undefined ? {} : { maxBudget: nanosOf(payload.max_budget) }),
  ...(payload.soft_budget === undefined ? {} : { softBudget: nanosOf(payload.soft_budget) }),
  ...(payload.budget_duration === undefined ? {} : { budgetDuration: payload.budget_duration }),
  ...(payload.rpm_limit === undefined ? {} : { rpmLimit: payload.rpm_limit }),
  ...(payload.tpm_limit === undefined ? {} : { tpmLimit: payload.tpm_limit })
})

export const BudgetHandlers = HttpApiBuilder.group(
  Api,
  "budget",
  Effect.fn(function* (handlers) {
    const tiers = yield* BudgetTiers
    return handlers.handleAll({
      new: Effect.fnUntraced(function* ({ payload }) {
        yield* tiers.create({ budgetId: payload.budget_id, ...changeOf(payload) }, yield* rowCaller)
        return { budget_id: payload.budget_id }
      }),
      update: Effect.fnUntraced(function* ({ payload }) {
        yield* tiers.update(payload.budget_id, changeOf(payload), yield* rowCaller)
        return { updated: true }
      }),
      delete: Effect.fnUntraced(function* ({ payload }) {
        yield* tiers.remove(payload.budget_id, yield* rowCaller)
        return { deleted: true }
      }),
      info: Effect.fnUntraced(function* ({ query }) {
        return shown(yield* tiers.find(query.budget_id, yield* rowCaller))
      }),
      list: Effect.fnUntraced(function* ({ query }) {
        const { hasMore, rows } = yield* tiers.list(pageOf(query, undocumentedPageSize), yield* rowCaller)
        return { data: rows.map(shown), has_more: hasMore }
      })
    })
  })
)
