import type { Limit } from "#domain/limits.ts"

/** The public scope: the tenant of everything while no tenants are configured. */
export const publicTenant = ""

/**
 * All that a model call needs to know of the key it came with, compiled once per change of the key and never per call:
 * owner, allowlist and limits of the key itself and of its user, team and organization.
 */
export interface KeyPolicy {
  readonly id: string
  readonly tenant: string
  readonly keyName: string | null
  readonly keyAlias: string | null
  readonly userId: string | null
  readonly teamId: string | null
  readonly organizationId: string | null
  /** The models that the key may call; undefined: all. */
  readonly models: ReadonlySet<string> | undefined
  /** Unix milliseconds after which the key is refused; undefined: never. */
  readonly expiresAt: number | undefined
  readonly limits: ReadonlyArray<Limit>
}

/** Roles of a signed administrator token (decisions.md, section 3). */
export const administratorRoles = ["instance_admin", "tenant_admin", "org_admin", "viewer"] as const
export type AdministratorRole = (typeof administratorRoles)[number]

export interface MasterKeyPrincipal {
  readonly _tag: "MasterKey"
}

export interface AdministratorPrincipal {
  readonly _tag: "Administrator"
  readonly subject: string
  readonly class: "control_plane" | "tenant"
  readonly role: AdministratorRole
  readonly tenant: string
  readonly organizationId: string | undefined
  readonly entitlements: ReadonlySet<string>
}

/** The owner of an API key, or the user of a live session whose `user_role` is `developer`. */
export interface DeveloperPrincipal {
  readonly _tag: "Developer"
  readonly userId: string
  readonly tenant: string
  /** The models that the presented key itself may call; absent: it restricts nothing. */
  readonly models?: ReadonlySet<string>
}

export interface ApiKeyPrincipal {
  readonly _tag: "ApiKey"
  readonly key: KeyPolicy
}

/** Who is calling, as attested by the credential and never by a request field. */
export type Principal = MasterKeyPrincipal | AdministratorPrincipal | DeveloperPrincipal | ApiKeyPrincipal

export const masterKeyPrincipal: MasterKeyPrincipal = { _tag: "MasterKey" }

/** The callers that may use management operations. */
export type ManagementPrincipal = MasterKeyPrincipal | AdministratorPrincipal

/** The actor string that audit entries carry. */
export const actorOf = (principal: Principal): string => {
  switch (principal._tag) {
    case "MasterKey":
      return "master_key"
    case "Administrator":
      return `user:${principal.subject}`
    case "Developer":
      return `user:${principal.userId}`
    case "ApiKey":
      return `key:${principal.key.id}`
  }
}

/** The tenant that a caller's rows belong to. */
export const tenantOf = (principal: Principal): string => {
  switch (principal._tag) {
    case "MasterKey":
      return publicTenant
    case "Administrator":
    case "Developer":
      return principal.tenant
    case "ApiKey":
      return principal.key.tenant
  }
}

/** Master key, or an administrator of the whole instance. */
export const isInstanceAdmin = (principal: Principal): boolean =>
  principal._tag === "MasterKey" ||
  (principal._tag === "Administrator" && principal.class === "control_plane" && principal.role === "instance_admin")

/**
 * The rows that a management caller may see (decisions.md, section 3): an undefined field means no restriction.
 * A row outside the scope reads as absent.
 */
export interface RowScope {
  readonly tenant: string | undefined
  readonly organizationId: string | undefined
}

export const rowScopeOf = (principal: Principal): RowScope => {
  if (isInstanceAdmin(principal)) return { tenant: undefined, organizationId: undefined }
  if (principal._tag === "Administrator" && principal.role === "org_admin") {
    return { tenant: principal.tenant, organizationId: principal.organizationId ?? "" }
  }
  return { tenant: tenantOf(principal), organizationId: undefined }
}
