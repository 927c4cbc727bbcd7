/** What is told once, and the statements that keep it so. */
import { Effect } from "effect"
import type { SqlClient, SqlError } from "effect/sql"
import { type Limit, Window, windowAt } from "#domain/limits.ts"

/** The same news of a deployment is told again when it was last told this long ago, in milliseconds. */
export const HEALTH_QUIET_MS = 60_000

interface BudgetAlert {
  readonly kind: "budget"
  readonly subject: string
  readonly limit: Limit
  readonly ownerId: string
  readonly start: number
  readonly end: number
  readonly at: number
}

interface HealthAlert {
  readonly kind: "health"
  /** The deployment. */
  readonly subject: string
  readonly model: string
  readonly state: "unhealthy" | "recovered"
  /** For the log only: every tenant hears of health. */
  readonly reason: string | undefined
  readonly at: number
}

interface UnpricedAlert {
  readonly kind: "unpriced"
  /** The model's public name. */
  readonly subject: string
  readonly at: number
}

/** Something to be told of, once. Times are Unix milliseconds. */
export type Alert = BudgetAlert | HealthAlert | UnpricedAlert

/** The refusal of a budget in the window that holds `at`. A raised budget that is used up as well is another one. */
export const budgetAlert = (limit: Limit, at: number): BudgetAlert => {
  const window = limit.window._tag === "Minute" ? Window.Calendar({ unit: "m", count: 1 }) : limit.window
  const { end, start } = windowAt(window, at)
  const named = limit.account.slice(`budget:${limit.owner}:`.length)
  // Ids may hold an `@` themselves; only the account of a budget that starts anew ends in one and its duration.
  const cut = window._tag === "Lifetime" ? -1 : named.lastIndexOf("@")
  const ownerId = cut === -1 ? named : named.slice(0, cut)
  return { kind: "budget", subject: `${limit.account} ${start} ${limit.limit}`, limit, ownerId, start, end, at }
}

interface OwnerRow {
  readonly tenant: string
  readonly organization_id: string | null
  /** Nano-dollars, as far as calls are written down. */
  readonly spent: string
}

export const makeAlertStatements = (sql: SqlClient.SqlClient) => ({
  /**
   * Inside the transaction that tells it: whether nobody has. Who comes second waits for the first one's commit. Of a
   * deployment, news is what differs from what was last told of it, or was told a while ago.
   */
  isNews: (alert: Alert): Effect.Effect<boolean, SqlError.SqlError> => {
    const state = alert.kind === "health" ? alert.state : ""
    const expires = alert.kind === "budget" && Number.isFinite(alert.end) ? new Date(alert.end) : null
    return Effect.map(
      sql`INSERT INTO public.alerts_told AS t (kind, subject, state, told_at, expires_at)
        VALUES (${alert.kind}, ${alert.subject}, ${state}, ${new Date(alert.at)}, ${expires}::timestamptz)
        ON CONFLICT (kind, subject) DO UPDATE SET state = excluded.state, told_at = excluded.told_at
        WHERE t.kind = 'health' AND (t.state <> excluded.state OR t.told_at <= ${new Date(alert.at - HEALTH_QUIET_MS)})
        RETURNING 1`,
      (rows) => rows.length > 0
    )
  },

  /** Whose budget it is; undefined when the owner is gone. */
  ownerOf: ({ limit, ownerId, start }: BudgetAlert): Effect.Effect<OwnerRow | undefined, SqlError.SqlError> =>
    Effect.map(
      sql<OwnerRow>`SELECT o.tenant, o.organization_id, coalesce((
          SELECT a.spent FROM public.ledger_accounts a WHERE a.account = ${limit.account} AND a.window_start = ${start}
        ), 0)::text AS spent
        FROM (
          SELECT 'key' AS owner, k.id::text AS id, k.tenant, coalesce(k.organization_id, t.organization_id) AS organization_id
            FROM public.api_keys k LEFT JOIN public.teams t ON t.id = k.team_id AND t.tenant = k.tenant
            WHERE k.id = CASE WHEN ${limit.owner} = 'key' THEN ${ownerId}::text::uuid END
          UNION ALL SELECT 'user', id, tenant, NULL FROM public.users WHERE id = ${ownerId}
          UNION ALL SELECT 'team', id, tenant, organization_id FROM public.teams WHERE id = ${ownerId}
          UNION ALL SELECT 'organization', id, tenant, id FROM public.organizations WHERE id = ${ownerId}
          UNION ALL SELECT 'customer', id, tenant, organization_id FROM public.customers WHERE id = ${ownerId}
        ) AS o WHERE o.owner = ${limit.owner}`,
      ([row]) => row
    ),

  /** Forgets the windows that have ended a day ago: processes' clocks differ. */
  sweep: (now: number): Effect.Effect<void, SqlError.SqlError> =>
    Effect.asVoid(sql`DELETE FROM public.alerts_told WHERE expires_at < ${new Date(now - 86_400_000)}`)
})
