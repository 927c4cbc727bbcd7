import { Context, type Effect } from "effect"
import type { SqlError } from "effect/sql/SqlError"
import type { RateLimited, Unavailable } from "#domain/errors.ts"
import type { Limit } from "#domain/limits.ts"
import type { Nanos } from "#domain/money.ts"

/** The most that a call can consume; one request is implied. */
export interface Demand {
  readonly nanos: Nanos
  readonly tokens: number
}

/** What a call did consume. */
export interface Consumption {
  readonly nanos: Nanos
  readonly tokens: number
}

/** A budget account that a settled call is charged to, in the window that was open when the call was reserved. */
export interface Charge {
  readonly account: string
  /** Unix milliseconds. */
  readonly windowStart: number
  readonly nanos: Nanos
}

/**
 * A held allowance. Exactly one of `settle` and `release` takes effect, whichever comes first; every later call of
 * either does nothing, so both are safe in finalizers.
 */
export interface Reservation {
  /**
   * Replaces the worst case by what was consumed and returns the charges that the usage record must carry: the share
   * stays occupied until `post` has moved them into the account.
   */
  readonly settle: (actual: Consumption) => ReadonlyArray<Charge>
  /** Gives the whole allowance back: the call consumed nothing. The request itself stays counted. */
  readonly release: () => void
}

/** What the six quota headers tell (decisions.md, section 5); undefined where there is no such limit. */
export interface Quota {
  readonly requests: { readonly limit: number; readonly remaining: number; readonly resetAt: number } | undefined
  readonly tokens: { readonly limit: number; readonly remaining: number; readonly resetAt: number } | undefined
  readonly budgetRemaining: Nanos | undefined
}

/**
 * Limits that hold under concurrency (design.md, "BudgetLedger"; decisions.md, section 6): every budget and every
 * request or token window is an account, of which this process holds a leased share.
 */
export class BudgetLedger extends Context.Service<
  BudgetLedger,
  {
    /**
     * Reserves a call's worst case on every limit, or on none. Synchronous arithmetic while the held shares suffice;
     * otherwise it asks the database for a larger share. Fails with `rate_limit_exceeded`, `token_limit_exceeded` or
     * `budget_exceeded` (and `retryAfter`), or `database_unavailable` when the share is used up and no more can be asked for.
     */
    readonly reserve: (
      limits: ReadonlyArray<Limit>,
      demand: Demand
    ) => Effect.Effect<Reservation, RateLimited | Unavailable>
    /** `reserve` on the shares that this process holds right now; undefined: ask `reserve`. */
    readonly tryReserve: (limits: ReadonlyArray<Limit>, demand: Demand) => Reservation | undefined
    /**
     * Moves charges from this process's share into the accounts, inside the caller's transaction: once, and last, because
     * it locks the accounts. A transaction that was rolled back may be made again.
     */
    readonly post: (charges: ReadonlyArray<Charge>) => Effect.Effect<void, SqlError>
    /**
     * Tells the ledger that the transaction around `post` has committed: exactly once for every charge that a `settle` of
     * this process returned, or its share stays occupied. For charges of a former life it changes nothing.
     */
    readonly posted: (charges: ReadonlyArray<Charge>) => void
    /** The quota as this process knows it, for the headers. Never asks the database. */
    readonly quota: (limits: ReadonlyArray<Limit>) => Quota
    /** What has been spent in the account's current window, from the database. */
    readonly spent: (limit: Limit) => Effect.Effect<Nanos, Unavailable>
  }
>()("sluice/budgets/BudgetLedger") {}
