import { Context, type Effect } from "effect"
import type { SqlError } from "effect/sql/SqlError"

/** Gives back what the dead held. */
export class BudgetReclaim extends Context.Service<
  BudgetReclaim,
  {
    /**
     * Deletes the shares that former lives of a holder left behind; never this life's own. For the start, after the
     * journal of the former life is replayed and before the first call, so that a finished call's share never looks free
     * before it is charged.
     */
    readonly reclaim: (holder: string) => Effect.Effect<void, SqlError>
  }
>()("sluice/budgets/BudgetReclaim") {}
