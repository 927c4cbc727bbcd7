import { Effect, Redacted } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { ManagementCaller } from "#api/access.ts"
import { Api } from "#api/Api.ts"
import { instantText } from "#domain/instants.ts"
import { actorOf, isInstanceAdmin, publicTenant, rowScopeOf } from "#domain/principal.ts"
import { isGiven, ownerFor } from "#http/row-owner.ts"
import { type Callback, CallbackRegistry } from "#services/callbacks/CallbackRegistry.ts"
import { Tenants } from "#services/tenants/Tenants.ts"

const shown = (callback: Callback) => ({
  callback_id: callback.id,
  url: callback.url,
  events: callback.events,
  secret: "********",
  created_at: instantText(callback.createdAt)
})

export const CallbackHandlers = HttpApiBuilder.group(
  Api,
  "callback",
  Effect.fn(function* (handlers) {
    const callbacks = yield* CallbackRegistry
    const tenants = yield* Tenants
    return handlers.handleAll({
      new: Effect.fnUntraced(function* ({ payload }) {
        const caller = yield* ManagementCaller
        const owner = yield* ownerFor(tenants, caller)
        const given = isGiven(payload.secret) ? Redacted.make(payload.secret) : undefined
        const { id, secret } = yield* callbacks.create({
          owner,
          wholeInstance: isInstanceAdmin(caller) && owner.tenant === publicTenant,
          url: payload.url,
          events: payload.events ?? [],
          secret: given,
          actor: actorOf(caller)
        })
        return { callback_id: id, ...(given === undefined ? { secret: Redacted.value(secret) } : {}) }
      }),
      delete: Effect.fnUntraced(function* ({ payload }) {
        const caller = yield* ManagementCaller
        yield* callbacks.remove(payload.callback_id, rowScopeOf(caller), actorOf(caller))
        return { deleted: true }
      }),
      list: Effect.fnUntraced(function* () {
        const found = yield* callbacks.list(rowScopeOf(yield* ManagementCaller))
        return { data: found.map(shown) }
      })
    })
  })
)
