import type { JsonObject } from "#domain/json.ts"
import type { Nanos } from "#domain/money.ts"

/** An API key as it is stored; the token itself never is. Times are Unix milliseconds. */
export interface Key {
  readonly id: string
  readonly tenant: string
  readonly keyName: string | null
  readonly keyAlias: string | null
  /** The last four characters of the token, for people who hold several. */
  readonly tokenHint: string
  readonly userId: string | null
  readonly teamId: string | null
  readonly organizationId: string | null
  readonly maxBudget: Nanos | null
  readonly models: ReadonlyArray<string>
  readonly rpmLimit: number | null
  readonly tpmLimit: number | null
  /** The budget tier that binds it as well. */
  readonly budgetId: string | null
  readonly expires: number | null
  readonly metadata: JsonObject
  readonly blocked: boolean
  readonly createdBy: string
  readonly createdAt: number
  readonly updatedAt: number
}

/** What a caller decides about a new key. */
export interface KeyDraft {
  readonly tenant: string
  readonly keyName: string | null
  readonly keyAlias: string | null
  readonly userId: string | null
  readonly teamId: string | null
  readonly organizationId: string | null
  readonly maxBudget: Nanos | null
  readonly models: ReadonlyArray<string>
  readonly rpmLimit: number | null
  readonly tpmLimit: number | null
  readonly budgetId?: string | null
  readonly expires: number | null
  readonly metadata: JsonObject
  readonly actor: string
}

/** The fields to write; an absent one leaves the stored value untouched, null clears it. */
export interface KeyChange {
  readonly keyName?: string | null
  readonly keyAlias?: string | null
  readonly maxBudget?: Nanos | null
  readonly models?: ReadonlyArray<string>
  readonly rpmLimit?: number | null
  readonly tpmLimit?: number | null
  readonly budgetId?: string | null
  readonly expires?: number | null
  readonly teamId?: string | null
  readonly metadata?: JsonObject
  readonly actor: string
}

/** Names one key: by its token, its row id, or its alias. */
export interface KeyTarget {
  readonly token?: string
  readonly id?: string
  readonly alias?: string
}

export interface KeyFilter {
  readonly userId?: string
  readonly teamId?: string
  readonly organizationId?: string
  /** Matches name, alias, owner and the row id. */
  readonly search?: string
  readonly page: number
  readonly pageSize: number
}
