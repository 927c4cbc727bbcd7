import { Context, type Effect } from "effect"
import type { GatewayError, Unavailable } from "#domain/errors.ts"
import type { Listed, Page, RowCaller, User, UserChange, UserDraft } from "#domain/people.ts"

/** Users (management-api.md, "user"). A row outside the caller's scope is `resource_not_found`. */
export class Users extends Context.Service<
  Users,
  {
    /** An email of a living user of the tenant is 400 `already_exists`. */
    readonly create: (draft: UserDraft, caller: RowCaller) => Effect.Effect<User, GatewayError>
    readonly update: (id: string, change: UserChange, caller: RowCaller) => Effect.Effect<void, GatewayError>
    /** Soft: spend history stays, memberships end, and the user's keys are refused from then on. */
    readonly remove: (id: string, caller: RowCaller) => Effect.Effect<void, GatewayError>
    /** By id, or by the email within the caller's own tenant. */
    readonly find: (
      target: { readonly id: string } | { readonly email: string },
      caller: RowCaller
    ) => Effect.Effect<User, GatewayError>
    /** Newest first. */
    readonly list: (
      filter: Page & { readonly role?: string },
      caller: RowCaller
    ) => Effect.Effect<Listed<User>, Unavailable>
  }
>()("sluice/people/Users") {}
