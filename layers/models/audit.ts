import { Clock, Effect } from "effect"
import type { JsonObject } from "#domain/json.ts"
import { publicTenant } from "#domain/principal.ts"
import { CurrentRequestId } from "#services/identity/CurrentRequestId.ts"
import type { Provenance } from "#services/provenance/Provenance.ts"

/** Writes an audit entry about what belongs to the whole instance, inside the caller's transaction. */
export const auditInstance =
  (provenance: Provenance["Service"]) =>
  (
    resourceType: "model" | "credential",
    action: "created" | "updated" | "deleted",
    resourceIds: ReadonlyArray<string>,
    actor: string,
    payload: JsonObject
  ) =>
    Effect.gen(function* () {
      const requestId = yield* CurrentRequestId
      const createdAt = yield* Clock.currentTimeMillis
      yield* provenance.append(
        publicTenant,
        resourceIds.map((resourceId) => ({
          action: `${resourceType}.${action}`,
          actor,
          resourceType,
          resourceId,
          requestId,
          payload,
          createdAt
        }))
      )
    })
