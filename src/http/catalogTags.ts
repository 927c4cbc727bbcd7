import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { ManagementCaller } from "#api/access.ts"
import { Api } from "#api/Api.ts"
import { actorOf } from "#domain/principal.ts"
import { ownerFor } from "#http/row-owner.ts"
import { CatalogTags } from "#services/catalog/CatalogTags.ts"
import { Tenants } from "#services/tenants/Tenants.ts"

export const CatalogTagsHandlers = HttpApiBuilder.group(
  Api,
  "catalog_tags",
  Effect.fn(function* (handlers) {
    const tags = yield* CatalogTags
    const tenants = yield* Tenants
    return handlers.handleAll({
      list: Effect.fnUntraced(function* () {
        const owner = yield* ownerFor(tenants, yield* ManagementCaller)
        return { data: yield* tags.list(owner) }
      }),
      set: Effect.fnUntraced(function* ({ payload }) {
        const caller = yield* ManagementCaller
        const owner = yield* ownerFor(tenants, caller)
        const { key, ns, target, value } = payload
        yield* tags.set(owner, { ns: ns ?? "", key, value: value ?? "", target }, actorOf(caller))
      }),
      remove: Effect.fnUntraced(function* ({ payload }) {
        const caller = yield* ManagementCaller
        const owner = yield* ownerFor(tenants, caller)
        const { key, ns, target } = payload
        yield* tags.remove(owner, { ns: ns ?? undefined, key: key ?? undefined, target }, actorOf(caller))
      })
    })
  })
)
