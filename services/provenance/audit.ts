import { Clock, Effect } from "effect"
import type { SqlError } from "effect/sql/SqlError"
import type { JsonObject } from "#domain/json.ts"
import { CurrentRequestId } from "#services/identity/CurrentRequestId.ts"
import { Provenance } from "#services/provenance/Provenance.ts"

/** What somebody did to one thing. */
export interface AuditedAction {
  readonly tenant: string
  readonly action: string
  readonly actor: string
  readonly resourceType: string
  readonly resourceId: string
  readonly organizationId?: string
  readonly payload: JsonObject
}

/**
 * Writes the audit entry of a mutation, inside its transaction and as its last statement: the tenant's chain stays locked
 * from here to the commit.
 */
export const makeAudit: Effect.Effect<(action: AuditedAction) => Effect.Effect<void, SqlError>, never, Provenance> =
  Effect.gen(function* () {
    const provenance = yield* Provenance
    const clock = yield* Clock.Clock
    return ({ organizationId, tenant, ...entry }) =>
      Effect.flatMap(CurrentRequestId, (requestId) =>
        provenance.append(tenant, [
          {
            ...entry,
            requestId,
            createdAt: clock.currentTimeMillisUnsafe(),
            ...(organizationId === undefined || organizationId === "" ? {} : { organizationId })
          }
        ])
      )
  })
