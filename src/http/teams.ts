import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { Api } from "#api/Api.ts"
import { undocumentedPageSize } from "#api/people-fields.ts"
import { notFound } from "#domain/errors.ts"
import { instantText } from "#domain/instants.ts"
import { dollarsNumber } from "#domain/money.ts"
import type { Team } from "#domain/people.ts"
import { limitsOf, pageOf, rowCaller, shownLimits } from "#http/people-fields.ts"
import { isGiven } from "#http/row-owner.ts"
import { Teams } from "#services/people/Teams.ts"

const shown = (team: Team) => ({
  id: team.id,
  team_id: team.id,
  alias: team.alias,
  name: team.alias,
  team_alias: team.alias,
  org_id: team.organizationId,
  org_name: team.organizationAlias,
  organization_id: team.organizationId,
  member_count: team.memberCount,
  spend: dollarsNumber(team.totalSpend),
  total_spend: dollarsNumber(team.totalSpend),
  current_spend: dollarsNumber(team.currentSpend),
  blocked: team.blocked,
  status: team.blocked ? ("blocked" as const) : ("active" as const),
  ...shownLimits(team),
  created_at: instantText(team.createdAt)
})

export const TeamHandlers = HttpApiBuilder.group(
  Api,
  "team",
  Effect.fn(function* (handlers) {
    const teams = yield* Teams
    return handlers.handleAll({
      new: Effect.fnUntraced(function* ({ payload }) {
        const id = yield* teams.create(
          {
            alias: payload.team_alias,
            ...(isGiven(payload.organization_id) ? { organizationId: payload.organization_id } : {}),
            ...limitsOf(payload)
          },
          yield* rowCaller
        )
        return { team_id: id }
      }),
      update: Effect.fnUntraced(function* ({ payload }) {
        const alias = payload.team_alias === undefined ? {} : { alias: payload.team_alias }
        yield* teams.update(payload.team_id, { ...alias, ...limitsOf(payload) }, yield* rowCaller)
        return { updated: true }
      }),
      block: Effect.fnUntraced(function* ({ payload }) {
        yield* teams.setBlocked(payload.team_id, true, yield* rowCaller)
        return { blocked: true }
      }),
      unblock: Effect.fnUntraced(function* ({ payload }) {
        yield* teams.setBlocked(payload.team_id, false, yield* rowCaller)
        return { unblocked: true }
      }),
      delete: Effect.fnUntraced(function* ({ payload }) {
        yield* teams.remove(payload.team_id, yield* rowCaller)
        return { deleted: true }
      }),
      memberAdd: Effect.fnUntraced(function* ({ payload: { role, team_id: id, user_id: userId } }) {
        if (!isGiven(id)) return yield* notFound("team")
        if (!isGiven(userId)) return yield* notFound("user")
        yield* teams.addMember(id, userId, isGiven(role) ? role : undefined, yield* rowCaller)
        return { added: true }
      }),
      memberDelete: Effect.fnUntraced(function* ({ payload: { team_id: id, user_id: userId } }) {
        if (!isGiven(id)) return yield* notFound("team")
        if (!isGiven(userId)) return yield* notFound("user")
        yield* teams.removeMember(id, userId, yield* rowCaller)
        return { removed: true }
      }),
      info: Effect.fnUntraced(function* ({ query }) {
        return shown(yield* teams.find(query.team_id, yield* rowCaller))
      }),
      list: Effect.fnUntraced(function* ({ query }) {
        const filter = {
          ...pageOf(query, undocumentedPageSize),
          ...(isGiven(query.organization_id) ? { organizationId: query.organization_id } : {})
        }
        const { hasMore, rows } = yield* teams.list(filter, yield* rowCaller)
        return { data: rows.map(shown), has_more: hasMore }
      })
    })
  })
)
