import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import type { RowCaller } from "#domain/people.ts"
import type { PlanLimits } from "#domain/tiers.ts"
import type { Changes, Lock } from "#layers/people/Changes.ts"
import {
  auditedLimits,
  changesLimits,
  limitAssignments,
  limitColumns,
  type LimitColumns,
  ownLimits
} from "#layers/people/limits.ts"
import { planLimitsOf, type StoredPlanLimits } from "#services/budgets/stored-plan-limits.ts"

/** Applies plan tiers (management-api.md, "Rules for apply_tier"). */
export const makeApplyTier = (sql: SqlClient.SqlClient, changes: Changes, lock: Lock) => {
  const { now, ownerChanged, record, transaction } = changes
  const columns = sql.literal(limitColumns.join(", "))

  const catalogued = (externalId: string) =>
    Effect.map(
      sql<{ readonly limits: StoredPlanLimits }>`SELECT limits FROM plan_tiers WHERE external_id = ${externalId}`,
      ([tier]): PlanLimits => (tier === undefined ? {} : planLimitsOf(tier.limits))
    )

  /**
   * Writes the rates to the rows of the keys, so that each is held to its plan. Models are not written: the
   * organization's bind its keys anyway, and a key that was restricted further must stay so. Rows that are so already
   * are left alone: a repetition touches nothing.
   */
  const applyToKeys = (id: string, tenant: string, { rpmLimit, tpmLimit }: PlanLimits, at: Date) => {
    if (rpmLimit === undefined && tpmLimit === undefined) return Effect.succeed(0)
    const differs = sql.or([
      ...(rpmLimit === undefined ? [] : [sql`rpm_limit IS DISTINCT FROM ${rpmLimit}::int4`]),
      ...(tpmLimit === undefined ? [] : [sql`tpm_limit IS DISTINCT FROM ${tpmLimit}::int4`])
    ])
    return Effect.map(
      sql<{ readonly changed: number }>`WITH changed AS (
        UPDATE api_keys SET ${sql.csv([
          ...(rpmLimit === undefined ? [] : [sql`rpm_limit = ${rpmLimit}`]),
          ...(tpmLimit === undefined ? [] : [sql`tpm_limit = ${tpmLimit}`]),
          sql`updated_at = ${at}`
        ])}
        WHERE tenant = ${tenant} AND discarded_at IS NULL AND ${differs} AND (organization_id = ${id}
          OR (organization_id IS NULL AND team_id IN (SELECT t.id FROM teams t WHERE t.organization_id = ${id})))
        RETURNING 1
      ) SELECT count(*)::int AS changed FROM changed`,
      ([row]) => row?.changed ?? 0
    )
  }

  return Effect.fn("Organizations.applyTier")(
    (id: string, externalId: string, override: PlanLimits, caller: RowCaller) =>
      transaction(
        Effect.gen(function* () {
          const { tenant } = yield* lock(id, caller, "NO KEY UPDATE")
          const effective: PlanLimits = { ...(yield* catalogued(externalId)), ...override }
          const at = new Date(now())
          const read = sql<LimitColumns>`SELECT ${columns} FROM organizations WHERE id = ${id}`
          const [before] = yield* read
          if (changesLimits(effective)) {
            yield* sql`UPDATE organizations SET ${sql.csv(limitAssignments(sql, effective))} WHERE id = ${id}`
          }
          const [after] = yield* read
          if (before === undefined || after === undefined) return yield* Effect.die(new Error("the locked row is gone"))
          const keys = yield* applyToKeys(id, tenant, effective, at)
          if (keys > 0 || JSON.stringify(before) !== JSON.stringify(after)) {
            yield* sql`UPDATE organizations SET updated_at = ${at} WHERE id = ${id}`
            yield* ownerChanged("organization", id)
          }
          const payload = { external_id: externalId, keys, ...auditedLimits(effective) }
          yield* record(
            { tenant, organizationId: id, resource: "organization", id, action: "tier_applied", payload },
            caller
          )
          return ownLimits(after)
        })
      )
  )
}
