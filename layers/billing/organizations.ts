/** How usage is told apart for billing: by organization, and by tenant where there is none. */

/** The label of usage: the organization, or the tenant's slug for usage without one. */
export const orgOf = (organizationId: string, tenant: string): string =>
  organizationId === "" ? tenant : organizationId

/** The order of PostgreSQL's "C" collation: by the bytes of UTF-8. */
export const compareText = (a: string, b: string): number => Buffer.compare(Buffer.from(a), Buffer.from(b))
