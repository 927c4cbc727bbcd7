/** What a developer may do for itself (management-api.md, "developer (self-service)"): plain rules. */
import type { Json } from "#domain/json.ts"
import { dollarsText, type Nanos } from "#domain/money.ts"
import { InvalidRequest, invalidValue, type ValidationFailed } from "#domain/errors.ts"

/** What a developer decides about a new key. Whose it is, its credential says. */
export interface DeveloperKeyDraft {
  readonly keyName: string | null
  readonly keyAlias: string | null
  /** Null: whatever is left of the grant. */
  readonly maxBudget: Nanos | null
  /** Undefined and empty alike: all that the developer may call. */
  readonly models: ReadonlyArray<string> | undefined
  readonly rpmLimit: number | null
  readonly tpmLimit: number | null
  /** Unix milliseconds. */
  readonly expires: number | null
}

/** A key as its owner sees it. Times are Unix milliseconds. */
export interface DeveloperKey {
  readonly id: string
  readonly keyName: string | null
  readonly keyAlias: string | null
  /** The last four characters of the token. */
  readonly tokenHint: string
  readonly maxBudget: Nanos | null
  readonly models: ReadonlyArray<string>
  readonly rpmLimit: number | null
  readonly tpmLimit: number | null
  readonly expires: number | null
  readonly blocked: boolean
  readonly createdAt: number
  readonly updatedAt: number
}

/** UTC days, both included, as `YYYY-MM-DD`. */
export interface DayRange {
  readonly start: string
  readonly end: string
}

/** What all of a developer's keys consumed, discarded ones included. */
export interface DeveloperSpend {
  readonly spend: Nanos
  readonly requests: number
}

/** What one key consumed. An alias that is the empty text stays one. */
export interface DeveloperKeyUsage extends DeveloperSpend {
  readonly keyId: string
  readonly keyName: string | null
  readonly keyAlias: string | null
  readonly discarded: boolean
}

/** One recorded call of a developer's key. */
export interface DeveloperCall {
  readonly requestId: string
  readonly keyId: string
  readonly keyAlias: string | null
  readonly operation: string
  readonly model: string
  readonly provider: string | null
  readonly status: string
  readonly errorCode: string | null
  readonly stream: boolean
  readonly promptTokens: number
  readonly completionTokens: number
  readonly spend: Nanos
  readonly startedAt: number
  readonly durationMs: number
}

/** One entry of the audit trail as a developer sees it. */
export interface DeveloperAuditEntry {
  readonly id: string
  readonly action: string
  readonly actor: string
  readonly resourceType: string
  readonly resourceId: string
  readonly requestId: string | null
  readonly payload: Json
  readonly createdAt: number
}

/** Exceeding DEVELOPER_MAX_KEYS_PER_USER (decisions.md, section 4). */
export const keyLimitReached = (limit: number) =>
  new InvalidRequest({
    code: "developer_key_limit",
    message: `A developer may have ${limit} keys; revoke one first.`
  })

export const idempotencyKeyReused = new InvalidRequest({
  code: "idempotency_key_reused",
  message: "This Idempotency-Key was used with another body.",
  param: "Idempotency-Key"
})

/**
 * The models of a new key: those asked for, or all, cut down to what each list allows. An empty answer means that nothing
 * restricts the developer; where something does and nothing remains it is a fault, because empty would mean all.
 */
export const grantedModels = (
  asked: ReadonlyArray<string> | undefined,
  lists: ReadonlyArray<Iterable<string> | undefined>
): ReadonlyArray<string> | ValidationFailed => {
  const restrictions = lists.filter((list) => list !== undefined).map((list) => new Set(list))
  const wanted = asked === undefined || asked.length === 0 ? restrictions[0] : new Set(asked)
  if (wanted === undefined) return []
  const granted = [...wanted].filter((model) => restrictions.every((allowed) => allowed.has(model)))
  return granted.length === 0 ? invalidValue("models", "None of these models is available to the developer.") : granted
}

/**
 * The budget of a new key: what is asked, or what is left of the ceiling. Null: there is no ceiling and none was asked.
 * A key that could spend nothing is refused unless that was asked for.
 */
export const grantedBudget = (
  asked: Nanos | null,
  ceiling: Nanos | null,
  allocated: Nanos
): Nanos | null | ValidationFailed => {
  if (ceiling === null) return asked
  const remaining = ceiling > allocated ? ceiling - allocated : 0n
  if (asked === null ? remaining === 0n : asked > remaining) {
    return invalidValue(
      "max_budget",
      `The remaining grant is ${dollarsText(remaining)} dollars; 'max_budget' must not exceed it.`
    )
  }
  return asked ?? remaining
}
