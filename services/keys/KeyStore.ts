import { Context, type Effect } from "effect"
import type { GatewayError, Unauthenticated, Unavailable } from "#domain/errors.ts"
import type { Key, KeyChange, KeyDraft, KeyFilter, KeyTarget } from "#domain/keys.ts"
import type { KeyPolicy, RowScope } from "#domain/principal.ts"

/** A key at its birth or rebirth: the only moments at which the plaintext exists. */
export interface IssuedKey {
  readonly key: Key
  readonly plaintext: string
}

/** API keys: who may call models, and under which policy (management-api.md, "key"). */
export class KeyStore extends Context.Service<
  KeyStore,
  {
    /** The policy of a token that this process knows and may still trust; undefined: ask `authenticate`. */
    readonly known: (token: string) => KeyPolicy | undefined
    /**
     * The policy of a token. Unknown, blocked, expired and discarded keys fail alike; a database that cannot be asked is
     * 503 `database_unavailable`, never 401.
     */
    readonly authenticate: (token: string) => Effect.Effect<KeyPolicy, Unauthenticated | Unavailable>
    readonly generate: (draft: KeyDraft) => Effect.Effect<IssuedKey, GatewayError>
    readonly update: (target: KeyTarget, change: KeyChange, scope: RowScope) => Effect.Effect<void, GatewayError>
    readonly setBlocked: (
      target: KeyTarget,
      blocked: boolean,
      scope: RowScope,
      actor: string
    ) => Effect.Effect<void, GatewayError>
    /** Discards what it finds and returns the ids; absent ones are not an error. */
    readonly discard: (
      targets: ReadonlyArray<KeyTarget>,
      scope: RowScope,
      actor: string
    ) => Effect.Effect<ReadonlyArray<string>, GatewayError>
    readonly regenerate: (target: KeyTarget, scope: RowScope, actor: string) => Effect.Effect<IssuedKey, GatewayError>
    readonly find: (target: KeyTarget, scope: RowScope) => Effect.Effect<Key, GatewayError>
    readonly list: (
      filter: KeyFilter,
      scope: RowScope
    ) => Effect.Effect<{ readonly keys: ReadonlyArray<Key>; readonly total: number }, Unavailable>
  }
>()("sluice/keys/KeyStore") {}
