import { Context, type Effect } from "effect"
import type { DayRange, DeveloperCall, DeveloperKeyUsage, DeveloperSpend } from "#domain/developer.ts"
import type { Unavailable } from "#domain/errors.ts"
import type { DeveloperPrincipal } from "#domain/principal.ts"

/** What a developer's keys consumed, discarded ones included. Sees this process's own calls. */
export class DeveloperUsage extends Context.Service<
  DeveloperUsage,
  {
    readonly spend: (developer: DeveloperPrincipal, days: DayRange) => Effect.Effect<DeveloperSpend, Unavailable>
    /** One row a key ever owned, the greatest spend first; at most `mostUsageRows`. */
    readonly perKey: (
      developer: DeveloperPrincipal,
      days: DayRange
    ) => Effect.Effect<ReadonlyArray<DeveloperKeyUsage>, Unavailable>
    /** Calls, the latest start first. `page` starts at 0. */
    readonly calls: (
      developer: DeveloperPrincipal,
      page: number,
      pageSize: number
    ) => Effect.Effect<ReadonlyArray<DeveloperCall>, Unavailable>
  }
>()("sluice/developer/DeveloperUsage") {}

/** A list without pages must end somewhere: whoever had more keys sees those that spent most. */
export const mostUsageRows = 10_000
