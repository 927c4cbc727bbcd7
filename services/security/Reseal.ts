import { Context, type Effect } from "effect"
import type { SqlError } from "effect/sql"

/** What was found in one table. */
export interface ResealReport {
  readonly table: string
  /** Rows that are now sealed with the current key. */
  readonly resealed: number
  /** Rows that cannot be opened, by the id of the key that sealed them: it is not configured, or they were tampered with. */
  readonly unreadable: ReadonlyMap<string, number>
}

/**
 * Seals everything at rest with the current encryption key, so that the previous ones can be taken out of the settings.
 * In short transactions and only where a row is still what was read: it may run beside gateways, be killed at any moment,
 * and be run again.
 */
export class Reseal extends Context.Service<
  Reseal,
  { readonly run: Effect.Effect<ReadonlyArray<ResealReport>, SqlError.SqlError> }
>()("sluice/security/Reseal") {}
