import { RateLimited } from "#domain/errors.ts"
import type { Limit, LimitKind, LimitOwner } from "#domain/limits.ts"

const owners: Record<LimitOwner, string> = {
  key: "API key",
  user: "user",
  team: "team",
  organization: "organization",
  customer: "customer",
  deployment: "deployment"
}

const rows = {
  budget: { code: "budget_exceeded", what: "budget" },
  requests: { code: "rate_limit_exceeded", what: "request rate limit" },
  tokens: { code: "token_limit_exceeded", what: "token rate limit" }
} as const satisfies Record<LimitKind, { readonly code: RateLimited["code"]; readonly what: string }>

/**
 * The 429 of a limit that a call does not fit. `end`: when the window ends, in Unix milliseconds; an endless one and that
 * of a budget of 0 tells nobody to retry.
 */
export const refusal = (limit: Limit, closed: boolean, end: number, now: number): RateLimited => {
  const { kind, owner } = limit
  const { code, what } = rows[kind]
  const message = `The ${what} of the ${owners[owner]} ${kind === "budget" ? "does not cover this call" : "is reached"}.`
  if (kind === "budget" && (closed || !Number.isFinite(end))) return new RateLimited({ code, message, limit })
  // A rate of 0 has no window; a minute is when somebody may have raised it.
  const millis = closed || end < now ? 60_000 : end - now
  return new RateLimited({ code, message, limit, retryAfter: Math.max(1, Math.ceil(millis / 1000)) })
}
