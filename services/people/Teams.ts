import { Context, type Effect } from "effect"
import type { GatewayError, Unavailable } from "#domain/errors.ts"
import type { Listed, Page, RowCaller, Team, TeamChange, TeamDraft } from "#domain/people.ts"

/** Teams (management-api.md, "team"). A row outside the caller's scope is `resource_not_found`. */
export class Teams extends Context.Service<
  Teams,
  {
    /** Returns the id. An organization that the caller cannot see is 400. */
    readonly create: (draft: TeamDraft, caller: RowCaller) => Effect.Effect<string, GatewayError>
    readonly update: (id: string, change: TeamChange, caller: RowCaller) => Effect.Effect<void, GatewayError>
    /** The keys of a blocked team are refused. */
    readonly setBlocked: (id: string, blocked: boolean, caller: RowCaller) => Effect.Effect<void, GatewayError>
    /** Soft: spend history stays, memberships end, and the team's keys are refused until they are given another team. */
    readonly remove: (id: string, caller: RowCaller) => Effect.Effect<void, GatewayError>
    readonly find: (id: string, caller: RowCaller) => Effect.Effect<Team, GatewayError>
    /** Newest first. */
    readonly list: (
      filter: Page & { readonly organizationId?: string },
      caller: RowCaller
    ) => Effect.Effect<Listed<Team>, Unavailable>
    /** A member already is given the role. Team and user belong to one tenant. */
    readonly addMember: (
      id: string,
      userId: string,
      role: string | undefined,
      caller: RowCaller
    ) => Effect.Effect<void, GatewayError>
    /** Somebody who is no member is `resource_not_found`. */
    readonly removeMember: (id: string, userId: string, caller: RowCaller) => Effect.Effect<void, GatewayError>
  }
>()("sluice/people/Teams") {}
