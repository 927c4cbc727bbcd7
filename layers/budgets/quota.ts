import type { Limit } from "#domain/limits.ts"
import { watchedBudget } from "#domain/policy-chain.ts"
import type { Share } from "#layers/budgets/Share.ts"
import type { Shares } from "#layers/budgets/Shares.ts"
import type { Quota } from "#services/budgets/BudgetLedger.ts"

const rateOf = (limit: Limit, share: Share, now: number): NonNullable<Quota["requests"]> => {
  const most = Number(limit.limit)
  if (now >= share.end || share.counted === undefined) return { limit: most, remaining: most, resetAt: now + 60_000 }
  const remaining = Math.min(most, Math.max(0, most - Number(share.counted) + share.free))
  return { limit: most, remaining, resetAt: share.end }
}

/**
 * The tightest limit of each kind, as this process knows it. What is reserved is not spent; what other processes hold of
 * a rate counts as used. `learn` has the database asked about an account that was never used here.
 */
export const quotaOf = (
  limits: ReadonlyArray<Limit>,
  shares: Shares,
  now: number,
  learn: (share: Share) => void
): Quota => {
  let requests: Quota["requests"]
  let tokens: Quota["tokens"]
  let budgetRemaining: Quota["budgetRemaining"]
  for (const limit of limits) {
    let share = shares.find(limit)
    if (share === undefined || (share.budget && now >= share.end)) share = shares.open(limit, now)
    if (share.counted === undefined && !share.queued && !share.busy) learn(share)
    if (share.budget) {
      // Counted only for the sake of a soft budget: there is no limit to tell of.
      if (limit.limit >= watchedBudget) continue
      const left = limit.limit - (share.counted ?? 0n) - BigInt(share.unposted)
      const remaining = left > 0n ? left : 0n
      if (budgetRemaining === undefined || remaining < budgetRemaining) budgetRemaining = remaining
    } else {
      const rate = rateOf(limit, share, now)
      const known = limit.kind === "requests" ? requests : tokens
      if (known === undefined || rate.remaining < known.remaining) {
        if (limit.kind === "requests") requests = rate
        else tokens = rate
      }
    }
  }
  return { requests, tokens, budgetRemaining }
}
