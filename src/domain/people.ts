/** Users, teams, organizations and customers (management-api.md, "Resources"). Times are Unix milliseconds. */
import type { JsonObject } from "#domain/json.ts"
import type { Nanos } from "#domain/money.ts"
import { actorOf, type ManagementPrincipal, type RowScope, rowScopeOf, tenantOf } from "#domain/principal.ts"

/** What may bind the calls of an owner. Null and the empty list mean: no such limit. */
export interface OwnLimits {
  readonly maxBudget: Nanos | null
  readonly softBudget: Nanos | null
  readonly rpmLimit: number | null
  readonly tpmLimit: number | null
  readonly models: ReadonlyArray<string>
  /** The budget tier of the same tenant that binds as well. */
  readonly budgetId: string | null
}

/** The limits to write: an absent one leaves the stored value untouched. */
export type LimitsChange = Partial<OwnLimits>

/** Who changes or reads rows: attested by the credential. */
export interface RowCaller {
  readonly scope: RowScope
  readonly actor: string
  /** The tenant of the rows that this caller makes, and within which an outside name is looked up. */
  readonly tenant: string
  /** Bound to one organization. */
  readonly organizationId: string | undefined
}

export const rowCallerOf = (principal: ManagementPrincipal): RowCaller => {
  const scope = rowScopeOf(principal)
  return { scope, actor: actorOf(principal), tenant: tenantOf(principal), organizationId: scope.organizationId }
}

/** One page of a list whose total is not documented. */
export interface Page {
  readonly page: number
  readonly pageSize: number
}

export interface Listed<A> {
  readonly rows: ReadonlyArray<A>
  readonly hasMore: boolean
}

/** The role of a user to whom none was given; it allows nothing. */
export const noRole = "user"

export interface User extends OwnLimits {
  readonly id: string
  readonly tenant: string
  readonly email: string | null
  readonly role: string
  readonly name: string
  /** The first of the organizations, and of the teams, that the user is a member of. */
  readonly organizationId: string | null
  readonly teamId: string | null
  readonly createdAt: number
  readonly updatedAt: number
}

export interface UserDraft extends LimitsChange {
  readonly email?: string
  readonly role?: string
  readonly name: string
}

export interface UserChange extends LimitsChange {
  readonly email?: string | null
  /** Null takes the role away. */
  readonly role?: string | null
  readonly name?: string
}

export interface Team extends OwnLimits {
  readonly id: string
  readonly tenant: string
  readonly alias: string
  readonly organizationId: string | null
  readonly organizationAlias: string | null
  readonly memberCount: number
  readonly blocked: boolean
  /** Recorded since ever. */
  readonly totalSpend: Nanos
  /** Recorded in the budget's current window; the total where the budget never starts anew. */
  readonly currentSpend: Nanos
  readonly createdAt: number
}

export interface TeamDraft extends LimitsChange {
  readonly alias: string
  readonly organizationId?: string
}

export interface TeamChange extends LimitsChange {
  readonly alias?: string
}

export interface Organization extends OwnLimits {
  readonly id: string
  readonly tenant: string
  readonly alias: string
  readonly metadata: JsonObject
  readonly memberCount: number
  readonly teamCount: number
  readonly totalSpend: Nanos
  readonly createdAt: number
}

export interface OrganizationDraft extends LimitsChange {
  readonly alias: string
  readonly metadata?: JsonObject
}

export interface OrganizationChange extends LimitsChange {
  readonly alias?: string
  readonly metadata?: JsonObject
}

/** A longer `user` of a call names no customer. */
export const maxEndUserIdLength = 256

/** An end user whom calls name in `user`. */
export interface Customer extends OwnLimits {
  readonly id: string
  readonly tenant: string
  readonly organizationId: string | null
  readonly endUserId: string
  readonly endUserName: string | null
  readonly blocked: boolean
  readonly totalSpend: Nanos
  readonly createdAt: number
}

export interface CustomerDraft extends LimitsChange {
  readonly endUserId: string
  readonly endUserName?: string
}

export interface CustomerChange extends LimitsChange {
  readonly endUserName?: string | null
  readonly blocked?: boolean
}

/** Names a customer: the row id decides, then the end user's id, then what may be either. */
export interface CustomerTarget {
  readonly id?: string
  readonly endUserId?: string
  readonly either: string
}
