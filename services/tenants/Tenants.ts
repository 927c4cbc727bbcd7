import { Context, type Effect } from "effect"

/** The tenants that the instance is provisioned for, and the PostgreSQL schema of each. */
export class Tenants extends Context.Service<
  Tenants,
  {
    /** Sorted slugs; empty while dormant. */
    readonly slugs: ReadonlyArray<string>
    readonly dormant: boolean
    /**
     * The quoted schema that holds a tenant's rows, ready to stand before a table name; `public` for the empty tenant and
     * for all while dormant. Fails for a slug that is not provisioned, so that no query runs in a schema by accident.
     */
    readonly schemaOf: (tenant: string) => Effect.Effect<string>
  }
>()("sluice/tenants/Tenants") {}
