import { Effect, Layer } from "effect"
import { isUuid } from "#domain/ids.ts"
import { notFound } from "#domain/errors.ts"
import type { Json, JsonObject } from "#domain/json.ts"
import { compileDefinition } from "#domain/pipelines/compile.ts"
import { type PipelineDefinition, workflowType } from "#domain/pipelines/definition.ts"
import { type AssetDocument, AssetCatalog } from "#services/assets/AssetCatalog.ts"
import { type DefinitionEntry, PipelineDefinitions } from "#services/pipelines/PipelineDefinitions.ts"

const kind = "pipeline_definition"
const maxListed = 500

const entryOf = (asset: AssetDocument): DefinitionEntry => ({
  assetId: asset.assetId,
  version: asset.version,
  workflowType: workflowType(asset.assetId, asset.version),
  name: asset.name,
  contentHash: asset.contentHash,
  content: asset.content,
  createdAt: asset.assetCreatedAt,
  updatedAt: asset.createdAt
})

/** Definitions as assets of the catalog: what is stored is the compiled definition and its source. */
export const layer: Layer.Layer<PipelineDefinitions, never, AssetCatalog> = Layer.effect(
  PipelineDefinitions,
  Effect.gen(function* () {
    const catalog = yield* AssetCatalog
    return PipelineDefinitions.of({
      register: Effect.fn("PipelineDefinitions.register")(function* (owner, { name, source }, actor) {
        const definition = yield* Effect.fromResult(compileDefinition(source))
        const document: JsonObject = {
          ...(definition as unknown as { readonly [name: string]: Json }),
          name: name ?? definition.name,
          dsl_source: source
        }
        const { assetId, version } = yield* catalog.put({ owner, kind, name, document, actor, path: "dsl_source" })
        return { assetId, version, workflowType: workflowType(assetId, version) }
      }),
      list: (scope) => Effect.map(catalog.list(scope, kind, maxListed), (assets) => assets.map(entryOf)),
      find: (scope, assetId) =>
        isUuid(assetId)
          ? Effect.map(catalog.find(scope, kind, assetId), entryOf)
          : Effect.fail(notFound("pipeline definition")),
      load: Effect.fnUntraced(function* (scope, assetId, version) {
        if (!isUuid(assetId)) return yield* notFound("pipeline definition")
        const asset = yield* catalog.find(scope, kind, assetId, version)
        if (asset.content === undefined) return yield* notFound("pipeline definition")
        const { dsl_source: _, ...definition } = asset.content
        return { registered: entryOf(asset), definition: definition as unknown as PipelineDefinition }
      })
    })
  })
)
