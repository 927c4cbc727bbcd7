import { Context, type Effect } from "effect"
import type { Unavailable } from "#domain/errors.ts"
import type { Nanos } from "#domain/money.ts"

/** Whose recorded spend is summed apart from the keys'. */
export type SpendOwner = "user" | "team" | "organization" | "customer"

/** Names an owner in the usage rows. */
export interface SpendRef {
  readonly tenant: string
  /** Of a customer the end user's id, as calls name it. */
  readonly id: string
  /** Of a customer: only the calls of this organization's keys; absent: all. */
  readonly organizationId?: string
}

/** Recorded spend of people, from rollups and never from the log. */
export class OwnerSpend extends Context.Service<
  OwnerSpend,
  {
    /** Spend since ever, in the order of `refs`. Sees this process's own calls. */
    readonly totals: (
      owner: SpendOwner,
      refs: ReadonlyArray<SpendRef>
    ) => Effect.Effect<ReadonlyArray<Nanos>, Unavailable>
  }
>()("sluice/usage/OwnerSpend") {}
