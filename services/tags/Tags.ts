import { Context, type Effect } from "effect"
import type { InvalidRequest, NotFound, Unavailable } from "#domain/errors.ts"
import type { RowScope } from "#domain/principal.ts"
import type { RowOwner } from "#domain/row-owner.ts"

/** A label that operators put on things (management-api.md, "Tag"). */
export interface Tag {
  readonly id: string
  readonly name: string
  readonly color: string
  readonly description: string
  /** Unix milliseconds. */
  readonly createdAt: number
}

/** By row id, within what the caller may see; or by name, which is unique among what the caller itself owns. */
export type TagTarget = { readonly id: string } | { readonly name: string }

/** The fields to write; an absent one leaves the stored value untouched. */
export interface TagChange {
  readonly name?: string
  readonly color?: string
  readonly description?: string
}

export class Tags extends Context.Service<
  Tags,
  {
    /** Returns the id. Fails with `already_exists`. */
    readonly create: (
      owner: RowOwner,
      tag: { readonly name: string; readonly color: string; readonly description: string },
      actor: string
    ) => Effect.Effect<string, InvalidRequest | Unavailable>
    /** Fails with `resource_not_found`, or `already_exists` where a new name is taken. */
    readonly update: (
      target: TagTarget,
      change: TagChange,
      owner: RowOwner,
      scope: RowScope,
      actor: string
    ) => Effect.Effect<void, InvalidRequest | NotFound | Unavailable>
    readonly remove: (
      target: TagTarget,
      owner: RowOwner,
      scope: RowScope,
      actor: string
    ) => Effect.Effect<void, NotFound | Unavailable>
    /** Newest first. */
    readonly list: (scope: RowScope) => Effect.Effect<ReadonlyArray<Tag>, Unavailable>
  }
>()("sluice/tags/Tags") {}
