import { Context, type Effect } from "effect"
import type { AssetKind } from "#domain/assets.ts"
import type { InvalidRequest, NotFound, Unavailable, ValidationFailed } from "#domain/errors.ts"
import type { JsonObject } from "#domain/json.ts"
import type { RowScope } from "#domain/principal.ts"
import type { RowOwner } from "#domain/row-owner.ts"

/** One version of an asset. */
export interface AssetVersion {
  readonly assetId: string
  readonly kind: AssetKind
  readonly owner: RowOwner
  readonly name: string
  readonly version: number
  /** Lower-case hexadecimal SHA-256 of the canonical JSON (RFC 8785) of the whole document. */
  readonly contentHash: string
  readonly itemCount: number
  readonly createdBy: string
  /** Unix milliseconds: when the version was made. */
  readonly createdAt: number
}

/** A version with its document. `content` is undefined where the answer would grow too large. */
export interface AssetDocument extends AssetVersion {
  readonly content: JsonObject | undefined
  /** Unix milliseconds: when the first version was made. */
  readonly assetCreatedAt: number
}

/** Which rows of one tenant a caller sees. */
export type AssetScope = RowScope & { readonly tenant: string }

/** What to write. `path` is where the document stands in the request, for the `param` of a fault. */
export interface AssetWrite {
  readonly owner: RowOwner
  readonly kind: AssetKind
  /** Undefined: the document's own `name`. */
  readonly name: string | undefined
  readonly document: JsonObject
  readonly actor: string
  readonly path: string
}

/**
 * Datasets, eval suites and pipeline definitions of each tenant: each write makes the next version, no version ever
 * changes. A write is checked against the JSON Schema of its kind, and its hash, version and items are written together.
 */
export class AssetCatalog extends Context.Service<
  AssetCatalog,
  {
    /**
     * Version 1 of a new asset, or the next version of the owner's asset of that kind and name. A dataset keeps its items
     * and adds those of the document; of the other kinds the document replaces the former.
     */
    readonly put: (write: AssetWrite) => Effect.Effect<AssetVersion, InvalidRequest | Unavailable | ValidationFailed>
    /** Adds items to a dataset: its next version. Items without an `id` are given one. */
    readonly appendItems: (
      scope: AssetScope,
      assetId: string,
      items: ReadonlyArray<JsonObject>,
      actor: string
    ) => Effect.Effect<AssetVersion, InvalidRequest | NotFound | Unavailable | ValidationFailed>
    /**
     * Adds up to `size` (at most 1,000) of the tenant's newest calls that the dataset does not hold yet, as items without
     * any text of theirs: the spend log has none. Returns how many; none makes no version.
     */
    readonly sampleFromProduction: (
      scope: AssetScope,
      assetId: string,
      size: number,
      actor: string
    ) => Effect.Effect<number, InvalidRequest | NotFound | Unavailable | ValidationFailed>
    /** One version with its whole document; `version` undefined: the head. */
    readonly find: (
      scope: AssetScope,
      kind: AssetKind,
      assetId: string,
      version?: number
    ) => Effect.Effect<AssetDocument, NotFound | Unavailable>
    /**
     * The heads, newest asset first, at most `limit`. Documents are left out of those that come after 8 MiB of them, and
     * of a dataset's items only the first 100 are there, as far as they fit into 64 KiB.
     */
    readonly list: (
      scope: AssetScope,
      kind: AssetKind,
      limit: number
    ) => Effect.Effect<ReadonlyArray<AssetDocument>, Unavailable>
    /** The versions of an asset, newest first, at most 500; documents as in `list`. */
    readonly versions: (
      scope: AssetScope,
      kind: AssetKind,
      assetId: string
    ) => Effect.Effect<ReadonlyArray<AssetDocument>, NotFound | Unavailable>
  }
>()("sluice/assets/AssetCatalog") {}
