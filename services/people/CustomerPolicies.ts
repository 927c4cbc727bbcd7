import { Context, type Effect } from "effect"
import type { SqlError } from "effect/sql/SqlError"
import type { Unavailable } from "#domain/errors.ts"
import type { Limit } from "#domain/limits.ts"

/** What binds the calls made for one end user, compiled once per change. */
export interface CustomerPolicy {
  readonly blocked: boolean
  readonly limits: ReadonlyArray<Limit>
  /** The models that may be called for the end user; undefined: all. */
  readonly models: ReadonlySet<string> | undefined
}

/** Whose end user it is: the scope of the calling key. */
export interface EndUser {
  readonly tenant: string
  readonly organizationId: string | null
  readonly id: string
}

/** The policies of customers, in memory as those of keys are (decisions.md, section 6.2). */
export class CustomerPolicies extends Context.Service<
  CustomerPolicies,
  {
    /**
     * The policy of an end user as far as this process knows it: null when nothing binds it, undefined when `find` must
     * be asked. Always null in a tenant that has no customers. Synchronous.
     */
    readonly known: (endUser: EndUser) => CustomerPolicy | null | undefined
    /**
     * Asks the database, at most one statement at a time for all that wait. A database that is away leaves what was known
     * in force; where nothing was, `database_unavailable`, so that no blocked customer gets through.
     */
    readonly find: (endUser: EndUser) => Effect.Effect<CustomerPolicy | null, Unavailable>
    /**
     * To be called inside the transaction that changes a customer, or a tier that may bind any: when it commits, the
     * policy is dropped, here at once and elsewhere within a second.
     */
    readonly changed: (customer: Pick<EndUser, "tenant" | "id"> | "all") => Effect.Effect<void, SqlError>
  }
>()("sluice/people/CustomerPolicies") {}
