import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { everyPrivilege } from "#domain/access.ts"
import { actorOf, isInstanceAdmin, type Principal, publicTenant, tenantOf } from "#domain/principal.ts"
import { AccessControl } from "#services/access/AccessControl.ts"
import { orUnavailable } from "#services/storage/outage.ts"

/** The names under which a caller may be a member: its actor, and a bare user id that cannot be taken for an actor. */
const memberNames = (principal: Principal): ReadonlyArray<string> => {
  const actor = actorOf(principal)
  const id = actor.startsWith("user:") ? actor.slice("user:".length) : ""
  return id === "" || id.includes(":") || id === "master_key" ? [actor] : [actor, id]
}

const administers = (principal: Principal, tenant: string): boolean =>
  isInstanceAdmin(principal) ||
  (principal._tag === "Administrator" && principal.role === "tenant_admin" && principal.tenant === tenant)

/** Asks the grants at each question: what was revoked is gone with the next one, on every process. */
export const layer: Layer.Layer<AccessControl, never, SqlClient.SqlClient> = Layer.effect(
  AccessControl,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient

    const grants = (principal: Principal, privilege: string, objectType: string, tenant: string) => sql`
      FROM public.group_members m
      JOIN public.groups g ON g.id = m.group_id
      JOIN public.catalog_roles r ON r.group_id = g.id
      JOIN public.catalog_role_grants p ON p.role_id = r.id
      WHERE ${sql.in("m.principal_id", memberNames(principal))}
        AND ${sql.in("g.tenant", [tenantOf(principal), publicTenant])}
        AND p.object_type = ${objectType}
        AND ${sql.in("p.privilege", [privilege, everyPrivilege])}
        AND CASE WHEN p.tenant = '' THEN g.tenant ELSE p.tenant END = ${tenant}`

    return AccessControl.of({
      allows: Effect.fn("AccessControl.allows")(function* (principal, privilege, objectType, objectId, tenant) {
        if (administers(principal, tenant)) return true
        const rows = yield* sql`SELECT 1 ${grants(principal, privilege, objectType, tenant)}
          AND ${sql.in("p.object_id", ["", objectId])} LIMIT 1`.pipe(orUnavailable)
        return rows.length > 0
      }),
      granted: Effect.fn("AccessControl.granted")(function* (principal, privilege, objectType, tenant) {
        if (administers(principal, tenant)) return "all"
        const rows = yield* sql<{ object_id: string }>`SELECT DISTINCT p.object_id
          ${grants(principal, privilege, objectType, tenant)}`.pipe(orUnavailable)
        const ids = new Set(rows.map(({ object_id }) => object_id))
        return ids.has("") ? "all" : ids
      })
    })
  })
)
