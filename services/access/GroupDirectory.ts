import { Context, type Effect } from "effect"
import type { Grant, Group } from "#domain/access.ts"
import type { Conflict, NotFound, PermissionDenied, Unavailable } from "#domain/errors.ts"

/** Which groups a caller may see and change; undefined: those of every tenant. */
export type GroupScope = string | undefined

/**
 * Groups, members and grants (management-api.md, "v1", rule 3). Everything but `create` may be repeated: it changes
 * nothing then and leaves no audit entry. A group of another tenant is as absent as one that never was.
 */
export class GroupDirectory extends Context.Service<
  GroupDirectory,
  {
    /** A group and its companion catalog role. Fails with `already_exists` when the name of either is taken. */
    readonly create: (group: {
      readonly tenant: string
      readonly name: string
      readonly catalog: string
      readonly actor: string
    }) => Effect.Effect<Group, Conflict | Unavailable>
    /** Newest first. */
    readonly list: (scope: GroupScope) => Effect.Effect<ReadonlyArray<Group>, Unavailable>
    readonly find: (
      id: string,
      scope: GroupScope
    ) => Effect.Effect<{ readonly group: Group; readonly grants: ReadonlyArray<Grant> }, NotFound | Unavailable>
    readonly remove: (id: string, scope: GroupScope, actor: string) => Effect.Effect<void, NotFound | Unavailable>
    /** In the order of their names. Fails with `insufficient_permissions` for an absent group: the operation has no 404. */
    readonly members: (
      id: string,
      scope: GroupScope
    ) => Effect.Effect<ReadonlyArray<string>, PermissionDenied | Unavailable>
    readonly addMember: (
      id: string,
      principal: string,
      scope: GroupScope,
      actor: string
    ) => Effect.Effect<void, PermissionDenied | Unavailable>
    readonly removeMember: (
      id: string,
      principal: string,
      scope: GroupScope,
      actor: string
    ) => Effect.Effect<void, PermissionDenied | Unavailable>
    /** Grants to the group's catalog role. Fails with `tenant_override_forbidden` for a tenant outside the scope. */
    readonly grant: (
      id: string,
      grant: Grant,
      scope: GroupScope,
      actor: string
    ) => Effect.Effect<void, NotFound | PermissionDenied | Unavailable>
    readonly revoke: (
      id: string,
      grant: Grant,
      scope: GroupScope,
      actor: string
    ) => Effect.Effect<void, NotFound | PermissionDenied | Unavailable>
  }
>()("sluice/access/GroupDirectory") {}
