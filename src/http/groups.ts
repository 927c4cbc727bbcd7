import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { ManagementCaller } from "#api/access.ts"
import { Api } from "#api/Api.ts"
import { defaultCatalog, defaultObjectType, type Grant, type Group } from "#domain/access.ts"
import { forbidden } from "#domain/errors.ts"
import { instantText } from "#domain/instants.ts"
import { actorOf, isInstanceAdmin } from "#domain/principal.ts"
import { isGiven, ownerFor } from "#http/row-owner.ts"
import { GroupDirectory } from "#services/access/GroupDirectory.ts"
import { Tenants } from "#services/tenants/Tenants.ts"

const shown = (group: Group) => ({
  id: group.id,
  name: group.name,
  catalog: group.catalogRole.catalog,
  catalog_role: { id: group.catalogRole.id, name: group.catalogRole.name },
  tenant: group.tenant,
  created_by: group.createdBy,
  created_at: instantText(group.createdAt)
})

const grantOf = (payload: {
  readonly privilege: string
  readonly object_type?: string | null
  readonly object_id?: string | null
  readonly tenant?: string | null
}): Grant => ({
  privilege: payload.privilege,
  objectType: isGiven(payload.object_type) ? payload.object_type : defaultObjectType,
  objectId: payload.object_id ?? "",
  tenant: payload.tenant ?? ""
})

export const GroupsHandlers = HttpApiBuilder.group(
  Api,
  "groups",
  Effect.fn(function* (handlers) {
    const groups = yield* GroupDirectory
    const tenants = yield* Tenants

    /** Groups decide over a whole tenant, so an organization's administrator has no say in them. */
    const attested = Effect.gen(function* () {
      const caller = yield* ManagementCaller
      if (caller._tag === "Administrator" && caller.role === "org_admin") return yield* forbidden()
      const { tenant } = yield* ownerFor(tenants, caller)
      return { actor: actorOf(caller), tenant, scope: isInstanceAdmin(caller) ? undefined : tenant }
    })

    return handlers.handleAll({
      list: () =>
        Effect.flatMap(attested, ({ scope }) =>
          Effect.map(groups.list(scope), (found) => ({ data: found.map(shown) }))
        ),
      create: Effect.fnUntraced(function* ({ payload }) {
        const { actor, tenant } = yield* attested
        const catalog = isGiven(payload.catalog) ? payload.catalog : defaultCatalog
        return { group: shown(yield* groups.create({ tenant, name: payload.name, catalog, actor })) }
      }),
      remove: Effect.fnUntraced(function* ({ params }) {
        const { actor, scope } = yield* attested
        yield* groups.remove(params.id, scope, actor)
        return { deleted: true }
      }),
      find: Effect.fnUntraced(function* ({ params }) {
        const { scope } = yield* attested
        const { grants, group } = yield* groups.find(params.id, scope)
        return {
          group: {
            ...shown(group),
            permissions: grants.map((grant) => ({
              privilege: grant.privilege,
              object_type: grant.objectType,
              object_id: grant.objectId,
              tenant: grant.tenant
            }))
          }
        }
      }),
      members: Effect.fnUntraced(function* ({ params }) {
        const { scope } = yield* attested
        return { data: yield* groups.members(params.id, scope) }
      }),
      addMember: Effect.fnUntraced(function* ({ params, payload }) {
        const { actor, scope } = yield* attested
        yield* groups.addMember(params.id, payload.principal_id, scope, actor)
        return { added: true }
      }),
      removeMember: Effect.fnUntraced(function* ({ params, payload }) {
        const { actor, scope } = yield* attested
        yield* groups.removeMember(params.id, payload.principal_id, scope, actor)
        return { removed: true }
      }),
      grant: Effect.fnUntraced(function* ({ params, payload }) {
        const { actor, scope } = yield* attested
        yield* groups.grant(params.id, grantOf(payload), scope, actor)
        return { granted: true }
      }),
      revoke: Effect.fnUntraced(function* ({ params, payload }) {
        const { actor, scope } = yield* attested
        yield* groups.revoke(params.id, grantOf(payload), scope, actor)
        return { revoked: true }
      })
    })
  })
)
