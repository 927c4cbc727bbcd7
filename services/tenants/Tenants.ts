import { Context, type Effect } from "effect"
import { publicTenant } from "#domain/principal.ts"

/** The tenants that the instance is provisioned for, and the PostgreSQL schema of each. */
export class Tenants extends Context.Service<
  Tenants,
  {
    /** Sorted slugs; empty while dormant. */
    readonly slugs: ReadonlyArray<string>
    readonly dormant: boolean
    /**
     * The quoted schema that holds a tenant's rows, ready to stand before a table name; `public` for the empty tenant and
     * for all while dormant. Dies of a `NotFound` for a slug that is not provisioned, so that no query runs in a schema by
     * accident and whoever asked to change rows of a tenant that was taken out of GATEWAY_TENANTS is told so.
     */
    readonly schemaOf: (tenant: string) => Effect.Effect<string>
  }
>()("sluice/tenants/Tenants") {}

/** Whether a tenant has a schema to hold its rows; while dormant the public one holds those of all. */
export const isProvisioned = (tenants: Pick<Tenants["Service"], "slugs" | "dormant">, tenant: string): boolean =>
  tenants.dormant || tenant === publicTenant || tenants.slugs.includes(tenant)
