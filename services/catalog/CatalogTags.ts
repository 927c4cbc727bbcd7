import { Context, type Effect } from "effect"
import type { Unavailable } from "#domain/errors.ts"
import type { JsonObject } from "#domain/json.ts"
import type { RowOwner } from "#domain/row-owner.ts"

/** A tag on something in the catalog (management-api.md, "Catalog tag"). One value a target, namespace and key. */
export interface CatalogTag {
  readonly ns: string
  readonly key: string
  readonly value: string
  readonly target: JsonObject
}

/** Tags on what the catalog holds. Writing the same again changes nothing. */
export class CatalogTags extends Context.Service<
  CatalogTags,
  {
    /** Sets the tag's value on the target. */
    readonly set: (owner: RowOwner, tag: CatalogTag, actor: string) => Effect.Effect<void, Unavailable>
    /** Removes the tags of a target; an undefined namespace or key stands for any. Absent ones are not an error. */
    readonly remove: (
      owner: RowOwner,
      tag: { readonly ns: string | undefined; readonly key: string | undefined; readonly target: JsonObject },
      actor: string
    ) => Effect.Effect<void, Unavailable>
    /** In the order of namespace and key. */
    readonly list: (owner: RowOwner) => Effect.Effect<ReadonlyArray<CatalogTag>, Unavailable>
  }
>()("sluice/catalog/CatalogTags") {}
