import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { Api } from "#api/Api.ts"
import { undocumentedPageSize } from "#api/people-fields.ts"
import { notFound } from "#domain/errors.ts"
import { instantText } from "#domain/instants.ts"
import { dollarsNumber } from "#domain/money.ts"
import type { Organization } from "#domain/people.ts"
import { limitsOf, pageOf, planLimitsOf, rowCaller, shownLimits, shownPlanLimits } from "#http/people-fields.ts"
import { isGiven } from "#http/row-owner.ts"
import { Organizations } from "#services/people/Organizations.ts"

const shown = (organization: Organization) => ({
  id: organization.id,
  organization_id: organization.id,
  alias: organization.alias,
  name: organization.alias,
  organization_alias: organization.alias,
  metadata: organization.metadata,
  member_count: organization.memberCount,
  team_count: organization.teamCount,
  spend: dollarsNumber(organization.totalSpend),
  total_spend: dollarsNumber(organization.totalSpend),
  ...shownLimits(organization),
  created_at: instantText(organization.createdAt)
})

export const OrganizationHandlers = HttpApiBuilder.group(
  Api,
  "organization",
  Effect.fn(function* (handlers) {
    const organizations = yield* Organizations
    return handlers.handleAll({
      applyTier: Effect.fnUntraced(function* ({ params, payload }) {
        const override = planLimitsOf(payload.override ?? {})
        const limits = yield* organizations.applyTier(params.id, payload.external_id, override, yield* rowCaller)
        return { organization_id: params.id, external_id: payload.external_id, ...shownPlanLimits(limits) }
      }),
      new: Effect.fnUntraced(function* ({ payload }) {
        const id = yield* organizations.create(
          {
            alias: payload.organization_alias,
            metadata: payload.metadata ?? {},
            ...limitsOf(payload)
          },
          yield* rowCaller
        )
        return { organization_id: id }
      }),
      update: Effect.fnUntraced(function* ({ payload }) {
        yield* organizations.update(
          payload.organization_id,
          {
            ...(payload.organization_alias === undefined ? {} : { alias: payload.organization_alias }),
            ...(payload.metadata === undefined ? {} : { metadata: payload.metadata ?? {} }),
            ...limitsOf(payload)
          },
          yield* rowCaller
        )
        return { updated: true }
      }),
      delete: Effect.fnUntraced(function* ({ payload }) {
        yield* organizations.remove(payload.organization_id, yield* rowCaller)
        return { deleted: true }
      }),
      memberAdd: Effect.fnUntraced(function* ({ payload: { organization_id: id, role, user_id: userId } }) {
        if (!isGiven(id)) return yield* notFound("organization")
        if (!isGiven(userId)) return yield* notFound("user")
        yield* organizations.addMember(id, userId, isGiven(role) ? role : undefined, yield* rowCaller)
        return { added: true }
      }),
      memberDelete: Effect.fnUntraced(function* ({ payload: { organization_id: id, user_id: userId } }) {
        if (!isGiven(id)) return yield* notFound("organization")
        if (!isGiven(userId)) return yield* notFound("user")
        yield* organizations.removeMember(id, userId, yield* rowCaller)
        return { removed: true }
      }),
      info: Effect.fnUntraced(function* ({ query }) {
        return shown(yield* organizations.find(query.organization_id, yield* rowCaller))
      }),
      list: Effect.fnUntraced(function* ({ query }) {
        const { hasMore, rows } = yield* organizations.list(pageOf(query, undocumentedPageSize), yield* rowCaller)
        return { data: rows.map(shown), has_more: hasMore }
      })
    })
  })
)
