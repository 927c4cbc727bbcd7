import { Context, type Effect, type Redacted } from "effect"
import type { InvalidRequest, NotFound, Unavailable, ValidationFailed } from "#domain/errors.ts"
import type { RowScope } from "#domain/principal.ts"
import type { RowOwner } from "#domain/row-owner.ts"

/** A registered callback without its secret. */
export interface Callback {
  readonly id: string
  readonly url: string
  /** Empty: every event. */
  readonly events: ReadonlyArray<string>
  /** Unix milliseconds. */
  readonly createdAt: number
}

/** Callbacks at most of one tenant or organization: each is a row for every event. */
export const maxCallbacks = 100

/** Who wants to be told of what, and where (management-api.md, "callback"). Secrets are encrypted at rest. */
export class CallbackRegistry extends Context.Service<
  CallbackRegistry,
  {
    /**
     * Fails for a URL that cannot be called. `wholeInstance` hears of every tenant. The secret is made where none is
     * given; this is the only moment at which it can be read.
     */
    readonly create: (callback: {
      readonly owner: RowOwner
      readonly wholeInstance: boolean
      readonly url: string
      readonly events: ReadonlyArray<string>
      readonly secret: Redacted.Redacted<string> | undefined
      readonly actor: string
    }) => Effect.Effect<
      { readonly id: string; readonly secret: Redacted.Redacted<string> },
      ValidationFailed | InvalidRequest | Unavailable
    >
    /** What is still owed to it is dropped. */
    readonly remove: (id: string, scope: RowScope, actor: string) => Effect.Effect<void, NotFound | Unavailable>
    /** Newest first. */
    readonly list: (scope: RowScope) => Effect.Effect<ReadonlyArray<Callback>, Unavailable>
  }
>()("sluice/callbacks/CallbackRegistry") {}
