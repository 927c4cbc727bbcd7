import { Effect } from "effect"
import { HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { ManagementCaller } from "#api/access.ts"
import { Api } from "#api/Api.ts"
import { instantText } from "#domain/instants.ts"
import { actorOf } from "#domain/principal.ts"
import type { PlanTier } from "#domain/tiers.ts"
import { planLimitsOf, shownPlanLimits, textOrNull } from "#http/people-fields.ts"
import { PlanTiers } from "#services/budgets/PlanTiers.ts"

/** The same bytes for the same tier: nothing in it tells how often it was put. */
const shown = (tier: PlanTier) => ({
  external_id: tier.externalId,
  slug: tier.slug,
  ...shownPlanLimits({
    maxBudget: null,
    softBudget: null,
    rpmLimit: null,
    tpmLimit: null,
    models: [],
    ...tier.limits
  }),
  created_at: instantText(tier.createdAt)
})

export const TierHandlers = HttpApiBuilder.group(
  Api,
  "tier",
  Effect.fn(function* (handlers) {
    const tiers = yield* PlanTiers
    return handlers.handleAll({
      put: Effect.fnUntraced(function* ({ payload }) {
        const { created, tier } = yield* tiers.put(
          {
            externalId: payload.external_id,
            ...(payload.slug === undefined ? {} : { slug: textOrNull(payload.slug) }),
            limits: planLimitsOf(payload)
          },
          actorOf(yield* ManagementCaller)
        )
        // Two statuses with one body: the status cannot be told from the value.
        return HttpServerResponse.jsonUnsafe(shown(tier), { status: created ? 201 : 200 })
      })
    })
  })
)
