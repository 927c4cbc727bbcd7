import { Context, type Effect } from "effect"
import type { Unavailable } from "#domain/errors.ts"
import type { Principal } from "#domain/principal.ts"

/** `all`: no restriction; else the ids. */
export type GrantedObjects = "all" | ReadonlySet<string>

/**
 * Whether grants allow something. The master key and instance administrators may do everything, a tenant's administrator
 * everything in its own tenant; for everybody else the grants of the groups decide that they are members of. Only groups
 * of the caller's own tenant and of the public scope count, so that a name in another tenant's group opens nothing.
 */
export class AccessControl extends Context.Service<
  AccessControl,
  {
    /** Whether the privilege on the object is granted; an `objectId` of "" asks for every object of the type. */
    readonly allows: (
      principal: Principal,
      privilege: string,
      objectType: string,
      objectId: string,
      tenant: string
    ) => Effect.Effect<boolean, Unavailable>
    /** The objects of a type in a tenant on which the privilege is granted, for lists. */
    readonly granted: (
      principal: Principal,
      privilege: string,
      objectType: string,
      tenant: string
    ) => Effect.Effect<GrantedObjects, Unavailable>
  }
>()("sluice/access/AccessControl") {}
