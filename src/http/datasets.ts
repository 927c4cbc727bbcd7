import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { ManagementCaller } from "#api/access.ts"
import { Api } from "#api/Api.ts"
import type { AssetKind } from "#domain/assets.ts"
import { instantText } from "#domain/instants.ts"
import type { JsonObject } from "#domain/json.ts"
import { actorOf } from "#domain/principal.ts"
import { ownerFor } from "#http/row-owner.ts"
import { AssetCatalog, type AssetDocument, type AssetScope } from "#services/assets/AssetCatalog.ts"
import { Tenants } from "#services/tenants/Tenants.ts"

const maxDatasets = 500

const shown = (asset: AssetDocument) => ({
  asset_id: asset.assetId,
  name: asset.name,
  version: asset.version,
  content_hash: asset.contentHash,
  ...(asset.content === undefined ? {} : { content: asset.content }),
  created_by: asset.createdBy
})

/** Whose assets a caller writes, and which of that tenant's it sees. */
export const attestedOwner = (tenants: Tenants["Service"]) =>
  Effect.gen(function* () {
    const caller = yield* ManagementCaller
    const owner = yield* ownerFor(tenants, caller)
    const scope: AssetScope = {
      tenant: owner.tenant,
      organizationId: owner.organizationId === "" ? undefined : owner.organizationId
    }
    return { actor: actorOf(caller), caller, owner, scope }
  })

const writer = (kind: AssetKind, catalog: AssetCatalog["Service"], tenants: Tenants["Service"]) =>
  Effect.fnUntraced(function* ({
    payload
  }: {
    readonly payload: { readonly name?: string | null; readonly content: JsonObject }
  }) {
    const { actor, owner } = yield* attestedOwner(tenants)
    const { content, name } = payload
    const made = yield* catalog.put({ owner, kind, name: name ?? undefined, document: content, actor, path: "content" })
    return { asset_id: made.assetId, version: made.version }
  })

export const DatasetHandlers = HttpApiBuilder.group(
  Api,
  "dataset",
  Effect.fn(function* (handlers) {
    const catalog = yield* AssetCatalog
    const tenants = yield* Tenants
    return handlers.handleAll({
      list: Effect.fnUntraced(function* () {
        const { scope } = yield* attestedOwner(tenants)
        const found = yield* catalog.list(scope, "dataset", maxDatasets)
        return {
          data: found.map((asset) => ({
            ...shown(asset),
            item_count: asset.itemCount,
            created_at: instantText(asset.assetCreatedAt),
            updated_at: instantText(asset.createdAt)
          }))
        }
      }),
      create: writer("dataset", catalog, tenants),
      append: Effect.fnUntraced(function* ({ params, payload }) {
        const { actor, scope } = yield* attestedOwner(tenants)
        yield* catalog.appendItems(scope, params.id, payload.items, actor)
        return { appended: payload.items.length }
      }),
      sample: Effect.fnUntraced(function* ({ params, payload }) {
        const { actor, scope } = yield* attestedOwner(tenants)
        return { sampled: yield* catalog.sampleFromProduction(scope, params.id, payload.sample_size, actor) }
      })
    })
  })
)

export const EvalSuiteHandlers = HttpApiBuilder.group(
  Api,
  "eval_suite",
  Effect.fn(function* (handlers) {
    const catalog = yield* AssetCatalog
    const tenants = yield* Tenants
    return handlers.handleAll({
      create: writer("eval_suite", catalog, tenants),
      versions: Effect.fnUntraced(function* ({ params }) {
        const { scope } = yield* attestedOwner(tenants)
        const found = yield* catalog.versions(scope, "eval_suite", params.id)
        return { data: found.map((asset) => ({ ...shown(asset), created_at: instantText(asset.createdAt) })) }
      })
    })
  })
)
