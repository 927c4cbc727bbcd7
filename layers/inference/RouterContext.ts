import type { Effect, Fiber } from "effect"
import type { RateLimited, Unavailable } from "#domain/errors.ts"
import type { Limit } from "#domain/limits.ts"
import type { RoutingTable } from "#layers/inference/Deployment.ts"
import type { Demand, Reservation } from "#services/budgets/BudgetLedger.ts"
import type { HealthChange } from "#services/inference/ProviderRouter.ts"

/** What every call shares. Times are in milliseconds. */
export interface RouterContext {
  readonly table: () => RoutingTable
  readonly now: () => number
  /** Allowance for a deployment's own limits; undefined: they are not enforced. */
  readonly reserve:
    | ((limits: ReadonlyArray<Limit>, demand: Demand) => Effect.Effect<Reservation, RateLimited | Unavailable>)
    | undefined
  readonly fork: <A, E>(effect: Effect.Effect<A, E>) => Fiber.Fiber<A, E>
  readonly healthChanged: (change: HealthChange) => void
  readonly options: RoutingOptions
}

export interface RoutingOptions {
  /** The first wait between two tries; doubled with each further one, and shortened by chance to as little as half. */
  readonly backoff: number
  readonly longestBackoff: number
  /** A longer Retry-After is not waited for: the next deployment is tried. */
  readonly longestRetryAfter: number
  /** The largest whole answer, in bytes. */
  readonly largestAnswer: number
}

export const defaultRouting: RoutingOptions = {
  backoff: 250,
  longestBackoff: 8_000,
  longestRetryAfter: 10_000,
  largestAnswer: 64 * 1024 * 1024
}
