import { Context, type Effect } from "effect"
import type { Unavailable, ValidationFailed } from "#domain/errors.ts"
import type { Json, JsonObject } from "#domain/json.ts"
import type { RowOwner } from "#domain/row-owner.ts"

/** Entries at most in one map. */
export const maxConfigurationEntries = 1000

/** Runtime configuration: one map of free-form entries for each tenant and organization. */
export class Configuration extends Context.Service<
  Configuration,
  {
    readonly read: (owner: RowOwner) => Effect.Effect<JsonObject, Unavailable>
    /** Writes the entries together or none; null removes one. Fails when the map would hold too many. */
    readonly update: (
      owner: RowOwner,
      entries: ReadonlyMap<string, Json>,
      actor: string
    ) => Effect.Effect<void, ValidationFailed | Unavailable>
  }
>()("sluice/configuration/Configuration") {}
