import type { JsonObject } from "#domain/json.ts"
import { type AdministratorPrincipal, type ManagementPrincipal, masterKeyPrincipal } from "#domain/principal.ts"

/** Who started a run, as its row keeps it. No credential is in it. */
export const principalText = (principal: ManagementPrincipal): string =>
  JSON.stringify(
    principal._tag === "MasterKey" ? principal : { ...principal, entitlements: [...principal.entitlements] }
  )

export const principalOf = (text: string): ManagementPrincipal => {
  const stored = JSON.parse(text) as JsonObject
  if (stored["_tag"] === "MasterKey") return masterKeyPrincipal
  const { entitlements, ...rest } = stored as unknown as Omit<AdministratorPrincipal, "entitlements"> & {
    readonly entitlements: ReadonlyArray<string>
  }
  return { ...rest, organizationId: rest.organizationId, entitlements: new Set(entitlements) }
}
