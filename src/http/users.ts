import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { Api } from "#api/Api.ts"
import { notFound } from "#domain/errors.ts"
import { instantText } from "#domain/instants.ts"
import type { User } from "#domain/people.ts"
import { limitsOf, pageOf, rowCaller, shownLimits } from "#http/people-fields.ts"
import { isGiven } from "#http/row-owner.ts"
import { Users } from "#services/people/Users.ts"

const shown = (user: User) => ({
  id: user.id,
  user_id: user.id,
  user_email: user.email,
  user_role: user.role,
  name: user.name,
  organization_id: user.organizationId,
  team_id: user.teamId,
  ...shownLimits(user),
  created_at: instantText(user.createdAt),
  updated_at: instantText(user.updatedAt)
})

export const UserHandlers = HttpApiBuilder.group(
  Api,
  "user",
  Effect.fn(function* (handlers) {
    const users = yield* Users
    return handlers.handleAll({
      new: Effect.fnUntraced(function* ({ payload }) {
        const user = yield* users.create(
          {
            name: payload.name,
            ...(isGiven(payload.user_email) ? { email: payload.user_email } : {}),
            ...(isGiven(payload.user_role) ? { role: payload.user_role } : {}),
            ...limitsOf(payload)
          },
          yield* rowCaller
        )
        return { id: user.id, user_email: user.email }
      }),
      update: Effect.fnUntraced(function* ({ payload }) {
        yield* users.update(
          payload.user_id,
          {
            ...(payload.user_email === undefined ? {} : { email: payload.user_email }),
            ...(payload.user_role === undefined ? {} : { role: payload.user_role }),
            ...(payload.name === undefined ? {} : { name: payload.name }),
            ...limitsOf(payload)
          },
          yield* rowCaller
        )
        return { updated: true }
      }),
      delete: Effect.fnUntraced(function* ({ payload }) {
        yield* users.remove(payload.user_id, yield* rowCaller)
        return { deleted: true }
      }),
      info: Effect.fnUntraced(function* ({ query }) {
        // Naming nobody finds nobody: the operation documents no 400.
        if (!isGiven(query.user_id) && !isGiven(query.user_email)) return yield* notFound("user")
        const target = isGiven(query.user_id) ? { id: query.user_id } : { email: query.user_email ?? "" }
        return shown(yield* users.find(target, yield* rowCaller))
      }),
      list: Effect.fnUntraced(function* ({ query }) {
        const filter = { ...pageOf(query), ...(isGiven(query.user_role) ? { role: query.user_role } : {}) }
        const { hasMore, rows } = yield* users.list(filter, yield* rowCaller)
        return { data: rows.map(shown), has_more: hasMore }
      })
    })
  })
)
