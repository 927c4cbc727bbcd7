import { Context, type Effect } from "effect"
import type { GatewayError, Unavailable } from "#domain/errors.ts"
import type {
  Listed,
  Organization,
  OrganizationChange,
  OrganizationDraft,
  OwnLimits,
  Page,
  RowCaller
} from "#domain/people.ts"
import type { PlanLimits } from "#domain/tiers.ts"

/**
 * Organizations (management-api.md, "organization"). A row outside the caller's scope is `resource_not_found`. Who is
 * bound to one organization may neither make nor delete one nor set its limits (`insufficient_permissions`).
 */
export class Organizations extends Context.Service<
  Organizations,
  {
    /** Returns the id. */
    readonly create: (draft: OrganizationDraft, caller: RowCaller) => Effect.Effect<string, GatewayError>
    readonly update: (id: string, change: OrganizationChange, caller: RowCaller) => Effect.Effect<void, GatewayError>
    /** Soft: spend history stays, memberships end, and the keys of the organization and of its teams are refused. */
    readonly remove: (id: string, caller: RowCaller) => Effect.Effect<void, GatewayError>
    readonly find: (id: string, caller: RowCaller) => Effect.Effect<Organization, GatewayError>
    /** Newest first. */
    readonly list: (filter: Page, caller: RowCaller) => Effect.Effect<Listed<Organization>, Unavailable>
    /** A member already is given the role. */
    readonly addMember: (
      id: string,
      userId: string,
      role: string | undefined,
      caller: RowCaller
    ) => Effect.Effect<void, GatewayError>
    /** Somebody who is no member is `resource_not_found`. */
    readonly removeMember: (id: string, userId: string, caller: RowCaller) => Effect.Effect<void, GatewayError>
    /**
     * Applies the plan tier `externalId`, with `override` over it, to the organization, and the rates to the keys of the
     * organization and its teams. A tier that is not in the catalogue leaves only the override. Returns the limits that
     * the organization has then; doing it again changes nothing and returns the same.
     */
    readonly applyTier: (
      id: string,
      externalId: string,
      override: PlanLimits,
      caller: RowCaller
    ) => Effect.Effect<OwnLimits, GatewayError>
  }
>()("sluice/people/Organizations") {}
