import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { ManagementCaller } from "#api/access.ts"
import { Api } from "#api/Api.ts"
import { missingField, type ValidationFailed } from "#domain/errors.ts"
import { isUuid } from "#domain/ids.ts"
import { instantText } from "#domain/instants.ts"
import { actorOf, rowScopeOf } from "#domain/principal.ts"
import { isGiven, ownerFor } from "#http/row-owner.ts"
import { type Tag, Tags, type TagTarget } from "#services/tags/Tags.ts"
import { Tenants } from "#services/tenants/Tenants.ts"

const shown = (tag: Tag) => ({
  id: tag.id,
  tag_id: tag.id,
  name: tag.name,
  tag_name: tag.name,
  color: tag.color,
  description: tag.description,
  created_at: instantText(tag.createdAt)
})

/** A row id where there is one in `id` or `tag_id`; else the first of the texts is a name. */
const targetOf = (payload: {
  readonly tag_id: string
  readonly id?: string | null
  readonly name?: string | null
  readonly tag_name?: string | null
}): Effect.Effect<TagTarget, ValidationFailed> => {
  const id = [payload.id, payload.tag_id].find((text) => isGiven(text) && isUuid(text))
  if (isGiven(id)) return Effect.succeed({ id })
  const name = [payload.tag_id, payload.id, payload.tag_name, payload.name].find(isGiven)
  return name === undefined ? Effect.fail(missingField("tag_id")) : Effect.succeed({ name })
}

export const TagHandlers = HttpApiBuilder.group(
  Api,
  "tag",
  Effect.fn(function* (handlers) {
    const tags = yield* Tags
    const tenants = yield* Tenants
    return handlers.handleAll({
      new: Effect.fnUntraced(function* ({ payload }) {
        const caller = yield* ManagementCaller
        const owner = yield* ownerFor(tenants, caller)
        const tag = {
          name: payload.tag_name,
          color: payload.color ?? "",
          description: payload.description ?? ""
        }
        return { tag_id: yield* tags.create(owner, tag, actorOf(caller)) }
      }),
      update: Effect.fnUntraced(function* ({ payload }) {
        const caller = yield* ManagementCaller
        const owner = yield* ownerFor(tenants, caller)
        const target = yield* targetOf(payload)
        // Where a name says which tag is meant, it is not one to be written.
        const name = "id" in target ? [payload.tag_name, payload.name].find(isGiven) : undefined
        const change = {
          ...(isGiven(name) ? { name } : {}),
          ...(typeof payload.color === "string" ? { color: payload.color } : {}),
          ...(typeof payload.description === "string" ? { description: payload.description } : {})
        }
        yield* tags.update(target, change, owner, rowScopeOf(caller), actorOf(caller))
        return { updated: true }
      }),
      delete: Effect.fnUntraced(function* ({ payload }) {
        const caller = yield* ManagementCaller
        const owner = yield* ownerFor(tenants, caller)
        yield* tags.remove(yield* targetOf(payload), owner, rowScopeOf(caller), actorOf(caller))
        return { deleted: true }
      }),
      list: Effect.fnUntraced(function* () {
        const found = yield* tags.list(rowScopeOf(yield* ManagementCaller))
        return { data: found.map(shown) }
      })
    })
  })
)
