import { Clock, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { publicTenant } from "#domain/principal.ts"
import type { PlanTier, PlanTierDraft } from "#domain/tiers.ts"
import { PlanTiers } from "#services/budgets/PlanTiers.ts"
import { planLimitsOf, storedPlanLimits, type StoredPlanLimits } from "#services/budgets/stored-plan-limits.ts"
import { makeAudit } from "#services/provenance/audit.ts"
import { orUnavailable } from "#services/storage/outage.ts"

interface PlanTierRow {
  readonly external_id: string
  readonly slug: string | null
  readonly limits: StoredPlanLimits
  readonly created_at: Date
  readonly updated_at: Date
  readonly created: boolean
}

const planTierOf = (row: PlanTierRow): PlanTier => ({
  externalId: row.external_id,
  slug: row.slug,
  limits: planLimitsOf(row.limits),
  createdAt: row.created_at.getTime(),
  updatedAt: row.updated_at.getTime()
})

export const layer = Layer.effect(
  PlanTiers,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const audit = yield* makeAudit
    const clock = yield* Clock.Clock

    const put = Effect.fn("PlanTiers.put")((draft: PlanTierDraft, actor: string) => {
      const date = new Date(clock.currentTimeMillisUnsafe())
      const limits = storedPlanLimits(draft.limits)
      return sql
        .withTransaction(
          Effect.gen(function* () {
            // xmax is 0 for a row that this statement has inserted.
            const [row] = yield* sql<PlanTierRow>`INSERT INTO plan_tiers AS p
                (external_id, slug, limits, created_by, created_at, updated_at)
              VALUES (${draft.externalId}, ${draft.slug ?? null}, ${JSON.stringify(limits)}::jsonb, ${actor}, ${date}, ${date})
              ON CONFLICT (external_id) DO UPDATE SET
                slug = CASE WHEN ${draft.slug !== undefined} THEN excluded.slug ELSE p.slug END,
                limits = p.limits || excluded.limits,
                updated_at = excluded.updated_at
              RETURNING external_id, slug, limits, created_at, updated_at, xmax = 0 AS created`
            if (row === undefined) return yield* Effect.die(new Error("no row came back"))
            yield* audit({
              tenant: publicTenant,
              action: row.created ? "tier.created" : "tier.updated",
              actor,
              resourceType: "tier",
              resourceId: draft.externalId,
              payload: { ...(draft.slug === undefined ? {} : { slug: draft.slug }), ...limits }
            })
            return { tier: planTierOf(row), created: row.created }
          })
        )
        .pipe(orUnavailable)
    })

    return PlanTiers.of({ put })
  })
)
