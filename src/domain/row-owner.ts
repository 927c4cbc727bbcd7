import { type ManagementPrincipal, tenantOf } from "#domain/principal.ts"

/** Whose a row is: a tenant's, or that of one of its organizations (the empty text: the tenant itself). */
export interface RowOwner {
  readonly tenant: string
  readonly organizationId: string
}

/** The owner of what a caller creates; undefined for an organization's administrator without an organization. */
export const rowOwnerOf = (principal: ManagementPrincipal): RowOwner | undefined => {
  const tenant = tenantOf(principal)
  if (principal._tag === "MasterKey" || principal.role !== "org_admin") return { tenant, organizationId: "" }
  const { organizationId } = principal
  return organizationId === undefined || organizationId === "" ? undefined : { tenant, organizationId }
}
