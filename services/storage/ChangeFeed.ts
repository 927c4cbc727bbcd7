import { Context, type Effect, type Scope } from "effect"
import type { SqlError } from "effect/sql"

/**
 * Tells every process that something in the database changed, so that caches can drop it.
 *
 * Delivery is at most once: what is sent while this process's connection is down never arrives. Whoever caches on the
 * strength of this feed must drop everything in `onReconnect`.
 */
export class ChangeFeed extends Context.Service<
  ChangeFeed,
  {
    /**
     * Calls `handler` with the payload of each notification on `channel` until the scope closes, in the order they
     * were committed, also for those this process sent. When the effect returns, everything committed later arrives
     * or `onReconnect` is called. A handler must be quick and not throw; one that throws is logged.
     * Channel names: at most 63 bytes.
     */
    readonly subscribe: (channel: string, handler: (payload: string) => void) => Effect.Effect<void, never, Scope.Scope>
    /** Sends at once or, inside a transaction, when it commits. A payload has less than 8000 bytes. */
    readonly notify: (channel: string, payload: string) => Effect.Effect<void, SqlError.SqlError>
    /** Calls `hook` whenever the feed works again after its connection was lost, until the scope closes. */
    readonly onReconnect: (hook: () => void) => Effect.Effect<void, never, Scope.Scope>
  }
>()("sluice/storage/ChangeFeed") {}
