import { Context, type Effect } from "effect"
import type { SqlError } from "effect/sql/SqlError"
import type { GatewayError, Unauthenticated, Unavailable } from "#domain/errors.ts"
import type { Key, KeyChange, KeyDraft, KeyFilter, KeyTarget } from "#domain/keys.ts"
import type { KeyPolicy, RowScope } from "#domain/principal.ts"

/** A key at its birth or rebirth: the only moments at which the plaintext exists. */
export interface IssuedKey {
  readonly key: Key
  readonly plaintext: string
}

/** Whose change reaches the policies of keys that are not changed themselves. A budget tier may bind any key. */
export type PolicyOwner = "user" | "team" | "organization" | "budget_tier"

/** API keys: who may call models, and under which policy (management-api.md, "key"). */
export class KeyStore extends Context.Service<
  KeyStore,
  {
    /** The policy of a token that this process knows and may still trust; undefined: ask `authenticate`. */
    readonly known: (token: string) => KeyPolicy | undefined
    /**
     * The policy of a token. Unknown, blocked, expired and discarded keys fail alike; a database that cannot be asked is
     * 503 `database_unavailable`, never 401, and does not keep known keys from being served.
     */
    readonly authenticate: (token: string) => Effect.Effect<KeyPolicy, Unauthenticated | Unavailable>
    /**
     * The policy of a key that a trusted caller names by row id, alias or owner (batch UDF; decisions.md, section 11), those
     * of the tenant first, then in that order, of several the newest. It may be another tenant's: the caller compares.
     */
    readonly ofPrincipal: (principal: string, tenant: string) => Effect.Effect<KeyPolicy, Unauthenticated | Unavailable>
    readonly generate: (draft: KeyDraft) => Effect.Effect<IssuedKey, GatewayError>
    readonly update: (target: KeyTarget, change: KeyChange, scope: RowScope) => Effect.Effect<void, GatewayError>
    readonly setBlocked: (
      target: KeyTarget,
      blocked: boolean,
      scope: RowScope,
      actor: string
    ) => Effect.Effect<void, GatewayError>
    /** Discards what it finds and returns the ids; absent ones are not an error. An alias names every key that has it. */
    readonly discard: (
      targets: ReadonlyArray<KeyTarget>,
      scope: RowScope,
      actor: string
    ) => Effect.Effect<ReadonlyArray<string>, GatewayError>
    readonly regenerate: (target: KeyTarget, scope: RowScope, actor: string) => Effect.Effect<IssuedKey, GatewayError>
    /** Of several keys with one alias the newest. */
    readonly find: (target: KeyTarget, scope: RowScope) => Effect.Effect<Key, GatewayError>
    readonly list: (
      filter: KeyFilter,
      scope: RowScope
    ) => Effect.Effect<{ readonly keys: ReadonlyArray<Key>; readonly total: number }, Unavailable>
    /**
     * To be called inside the transaction that changes what a user, team, organization or budget tier passes on to keys:
     * when it commits, their policies are compiled anew, here at once and elsewhere within a second.
     */
    readonly ownerChanged: (owner: PolicyOwner, id: string) => Effect.Effect<void, SqlError>
  }
>()("sluice/keys/KeyStore") {}
