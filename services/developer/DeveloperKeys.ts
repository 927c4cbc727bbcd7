import { Context, type Effect } from "effect"
import type { DeveloperKey, DeveloperKeyDraft } from "#domain/developer.ts"
import type { GatewayError, Unavailable } from "#domain/errors.ts"
import type { DeveloperPrincipal } from "#domain/principal.ts"

/** What the creation of a key answers: the only moment at which the plaintext exists. */
export interface MintedKey {
  readonly id: string
  readonly key: string
  readonly keyAlias: string | null
}

/** The keys that developers make and revoke for themselves. A key of somebody else reads as absent. */
export class DeveloperKeys extends Context.Service<
  DeveloperKeys,
  {
    /**
     * Creates a key within the developer's grant, each one counted against it before the next, in every process. The
     * same `idempotencyKey` and draft answer the first answer again; with another draft it is 400
     * `idempotency_key_reused`. More keys than allowed is 400 `developer_key_limit`; more budget than is left, or no
     * model, is 400 `invalid_value`.
     */
    readonly mint: (
      developer: DeveloperPrincipal,
      draft: DeveloperKeyDraft,
      idempotencyKey: string | undefined
    ) => Effect.Effect<MintedKey, GatewayError>
    /** Discards a live key; `resource_not_found` where it is not the developer's. */
    readonly revoke: (developer: DeveloperPrincipal, id: string) => Effect.Effect<void, GatewayError>
    readonly find: (developer: DeveloperPrincipal, id: string) => Effect.Effect<DeveloperKey, GatewayError>
    /** Live keys, newest first. */
    readonly list: (
      developer: DeveloperPrincipal,
      limit: number,
      offset: number
    ) => Effect.Effect<ReadonlyArray<DeveloperKey>, Unavailable>
    /** The models that the developer may call; undefined: all. */
    readonly allowlist: (developer: DeveloperPrincipal) => Effect.Effect<ReadonlySet<string> | undefined, Unavailable>
  }
>()("sluice/developer/DeveloperKeys") {}
