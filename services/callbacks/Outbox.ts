import { Context, type Effect } from "effect"
import type { SqlError } from "effect/sql/SqlError"
import type { CallbackEventType } from "#domain/events.ts"
import type { JsonObject } from "#domain/json.ts"

/** Something that happened, for those who registered a callback for it. */
export interface OutboxEvent {
  readonly type: CallbackEventType
  /** Whose event it is; undefined: the whole instance's, which every tenant may know of (models and their health). */
  readonly tenant: string | undefined
  /** Callbacks of an organization hear only of their own. */
  readonly organizationId: string | null
  /** Unix milliseconds. */
  readonly occurredAt: number
  readonly data: JsonObject
}

/**
 * The transactional outbox (decisions.md, section 9): what is appended is delivered at least once if the transaction
 * around it commits, and never if it does not. An event that nobody registered for costs a look and leaves no row.
 */
export class Outbox extends Context.Service<
  Outbox,
  {
    /** Appends inside the caller's transaction; without one it is a transaction of its own. */
    readonly append: (events: ReadonlyArray<OutboxEvent>) => Effect.Effect<void, SqlError>
  }
>()("sluice/callbacks/Outbox") {}
