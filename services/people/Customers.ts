import { Context, type Effect } from "effect"
import type { GatewayError, Unavailable } from "#domain/errors.ts"
import type {
  Customer,
  CustomerChange,
  CustomerDraft,
  CustomerTarget,
  Listed,
  Page,
  RowCaller
} from "#domain/people.ts"

/** Customers: the end users whom calls name (management-api.md, "customer"). */
export class Customers extends Context.Service<
  Customers,
  {
    /** Returns the row id. An end user who is a customer of the same scope already is 400 `already_exists`. */
    readonly create: (draft: CustomerDraft, caller: RowCaller) => Effect.Effect<string, GatewayError>
    readonly update: (
      target: CustomerTarget,
      change: CustomerChange,
      caller: RowCaller
    ) => Effect.Effect<void, GatewayError>
    /** Lifts what bound the end user; the recorded spend stays. */
    readonly remove: (target: CustomerTarget, caller: RowCaller) => Effect.Effect<void, GatewayError>
    /** Newest first. */
    readonly list: (filter: Page, caller: RowCaller) => Effect.Effect<Listed<Customer>, Unavailable>
  }
>()("sluice/people/Customers") {}
