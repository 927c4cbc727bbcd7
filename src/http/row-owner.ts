import { Effect } from "effect"
import { forbidden, type PermissionDenied } from "#domain/errors.ts"
import { type ManagementPrincipal, publicTenant } from "#domain/principal.ts"
import { type RowOwner, rowOwnerOf } from "#domain/row-owner.ts"
import type { Tenants } from "#services/tenants/Tenants.ts"

const noOrganization = forbidden("The caller belongs to no organization.")
const notProvisioned = forbidden("The caller's tenant is not provisioned.")

/** Whose rows a caller reads and writes where it names none. Fails for a tenant that has no schema. */
export const ownerFor = (
  tenants: Tenants["Service"],
  caller: ManagementPrincipal
): Effect.Effect<RowOwner, PermissionDenied> => {
  const owner = rowOwnerOf(caller)
  if (owner === undefined) return Effect.fail(noOrganization)
  const provisioned = owner.tenant === publicTenant || tenants.dormant || tenants.slugs.includes(owner.tenant)
  return provisioned ? Effect.succeed(owner) : Effect.fail(notProvisioned)
}

/** A text that says something. */
export const isGiven = (text: string | null | undefined): text is string =>
  text !== undefined && text !== null && text !== ""
