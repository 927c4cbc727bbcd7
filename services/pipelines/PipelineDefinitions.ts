import { Context, type Effect } from "effect"
import type { InvalidRequest, NotFound, Unavailable, ValidationFailed } from "#domain/errors.ts"
import type { JsonObject } from "#domain/json.ts"
import type { PipelineDefinition } from "#domain/pipelines/definition.ts"
import type { RowOwner } from "#domain/row-owner.ts"
import type { AssetScope } from "#services/assets/AssetCatalog.ts"

/** A version of a definition as it was registered. */
export interface RegisteredDefinition {
  readonly assetId: string
  readonly version: number
  readonly workflowType: string
}

/** The newest version of a definition, as lists show it. `content` is undefined where the answer would grow too large. */
export interface DefinitionEntry extends RegisteredDefinition {
  readonly name: string
  readonly contentHash: string
  readonly content: JsonObject | undefined
  /** Unix milliseconds. */
  readonly createdAt: number
  readonly updatedAt: number
}

/** Pipeline definitions as assets of the catalog (management-api.md, "pipeline", rule 1). */
export class PipelineDefinitions extends Context.Service<
  PipelineDefinitions,
  {
    /**
     * Compiles and stores: a new asset, or the next version of the one with this name. Without a name it is the one in the
     * source. A fault of the source has its line and column in the message.
     */
    readonly register: (
      owner: RowOwner,
      draft: { readonly name: string | undefined; readonly source: string },
      actor: string
    ) => Effect.Effect<RegisteredDefinition, ValidationFailed | InvalidRequest | Unavailable>
    /** Newest first. */
    readonly list: (scope: AssetScope) => Effect.Effect<ReadonlyArray<DefinitionEntry>, Unavailable>
    readonly find: (scope: AssetScope, assetId: string) => Effect.Effect<DefinitionEntry, NotFound | Unavailable>
    /** A version to be run; undefined: the newest. */
    readonly load: (
      scope: AssetScope,
      assetId: string,
      version: number | undefined
    ) => Effect.Effect<
      { readonly registered: RegisteredDefinition; readonly definition: PipelineDefinition },
      NotFound | Unavailable
    >
  }
>()("sluice/pipelines/PipelineDefinitions") {}
