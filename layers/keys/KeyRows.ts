import { hash } from "node:crypto"
import type { JsonObject } from "#domain/json.ts"
import type { Key } from "#domain/keys.ts"
import { limitOf, Window } from "#domain/limits.ts"
import { nanosFromDollars } from "#domain/money.ts"
import { chainOf, countable, type OwnerLimitsRow } from "#domain/policy-chain.ts"
import type { KeyPolicy } from "#domain/principal.ts"

/** A row of `api_keys` as the driver gives it. */
export interface KeyRow {
  readonly id: string
  readonly tenant: string
  readonly token_hash: Uint8Array
  readonly token_hint: string
  readonly key_name: string | null
  readonly key_alias: string | null
  readonly user_id: string | null
  readonly team_id: string | null
  readonly organization_id: string | null
  readonly max_budget: string | null
  readonly models: ReadonlyArray<string>
  readonly rpm_limit: number | null
  readonly tpm_limit: number | null
  readonly budget_id: string | null
  readonly expires: Date | null
  readonly metadata: JsonObject
  readonly blocked: boolean
  readonly created_by: string
  readonly created_at: Date
  readonly updated_at: Date
}

/** A key's row with what binds it beyond that (`policy_chain` of migrations/public/0011). */
export interface PolicyRow extends KeyRow {
  /** Its team is blocked, or somebody on its chain was deleted. */
  readonly refused: boolean
  /** The key's organization, or else its team's. */
  readonly chain_organization_id: string | null
  readonly owners: ReadonlyArray<OwnerLimitsRow | null>
}

const apiKey = /^sk-[A-Za-z0-9_-]{43}$/

/** Whether a text can be an API key at all (decisions.md, section 3). Nothing else is ever looked up. */
export const isApiKey = (text: string): boolean => apiKey.test(text)

/** The full SHA-256 of a token, as caches are keyed by it. */
export const tokenDigest = (token: string): string => hash("sha256", token, "base64")

/** The full SHA-256 of a token, as it is stored. */
export const tokenHash = (token: string): Buffer => hash("sha256", token, "buffer")

export const tokenHint = (token: string): string => token.slice(-4)

export const keyOf = (row: KeyRow): Key => ({
  id: row.id,
  tenant: row.tenant,
  keyName: row.key_name,
  keyAlias: row.key_alias,
  tokenHint: row.token_hint,
  userId: row.user_id,
  teamId: row.team_id,
  organizationId: row.organization_id,
  maxBudget: row.max_budget === null ? null : (nanosFromDollars(row.max_budget) ?? null),
  models: row.models,
  rpmLimit: row.rpm_limit,
  tpmLimit: row.tpm_limit,
  budgetId: row.budget_id,
  expires: row.expires === null ? null : row.expires.getTime(),
  metadata: row.metadata,
  blocked: row.blocked,
  createdBy: row.created_by,
  createdAt: row.created_at.getTime(),
  updatedAt: row.updated_at.getTime()
})

const limitsOf = (key: Key): KeyPolicy["limits"] => [
  ...(key.maxBudget === null ? [] : [limitOf("key", key.id, "budget", countable(key.maxBudget), Window.Lifetime())]),
  ...(key.rpmLimit === null ? [] : [limitOf("key", key.id, "requests", BigInt(key.rpmLimit), Window.Minute())]),
  ...(key.tpmLimit === null ? [] : [limitOf("key", key.id, "tokens", BigInt(key.tpmLimit), Window.Minute())])
]

/** Compiles what model calls need to know of a key. */
export const policyOf = (row: PolicyRow): KeyPolicy => {
  const key = keyOf(row)
  const chain = chainOf(key.models, limitsOf(key), row.owners)
  return {
    id: key.id,
    tenant: key.tenant,
    keyName: key.keyName,
    keyAlias: key.keyAlias,
    userId: key.userId,
    teamId: key.teamId,
    organizationId: row.chain_organization_id,
    models: chain.models,
    expiresAt: key.expires ?? undefined,
    limits: chain.limits
  }
}

/** Equal for rows that compile to equal policies. */
export const fingerprintOf = (row: PolicyRow): string =>
  JSON.stringify([
    row.id,
    row.tenant,
    row.key_name,
    row.key_alias,
    row.user_id,
    row.team_id,
    row.organization_id,
    row.max_budget,
    row.models,
    row.rpm_limit,
    row.tpm_limit,
    row.expires?.getTime() ?? null,
    row.chain_organization_id,
    row.owners
  ])
