import { Context, type Effect } from "effect"
import type { DeveloperAuditEntry } from "#domain/developer.ts"
import type { Unavailable } from "#domain/errors.ts"
import type { DeveloperPrincipal } from "#domain/principal.ts"

/** The audit trail of what a developer did, and of what anybody did to the developer's keys. */
export class DeveloperAudit extends Context.Service<
  DeveloperAudit,
  {
    /** Newest first; model calls are not among them. `page` starts at 1. */
    readonly list: (
      developer: DeveloperPrincipal,
      page: number,
      pageSize: number
    ) => Effect.Effect<ReadonlyArray<DeveloperAuditEntry>, Unavailable>
  }
>()("sluice/developer/DeveloperAudit") {}
