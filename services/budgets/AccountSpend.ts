import { Context, type Effect } from "effect"
import type { Unavailable } from "#domain/errors.ts"
import type { Nanos } from "#domain/money.ts"

/** One account of the ledger in one of its windows. */
export interface AccountWindow {
  readonly account: string
  /** Unix milliseconds; 0 for a window that never ends. */
  readonly windowStart: number
}

/** What has been charged to budget accounts, as the database knows it: for lists of many. */
export class AccountSpend extends Context.Service<
  AccountSpend,
  {
    /** In the order asked; 0 for an account that no call has been charged to in the window. */
    readonly spent: (windows: ReadonlyArray<AccountWindow>) => Effect.Effect<ReadonlyArray<Nanos>, Unavailable>
  }
>()("sluice/budgets/AccountSpend") {}
