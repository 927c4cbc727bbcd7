import type { SqlClient, Statement } from "effect/sql"
import type { DeveloperKey } from "#domain/developer.ts"
import { isUuid } from "#domain/ids.ts"
import type { DeveloperPrincipal } from "#domain/principal.ts"
import { nanosOf } from "#services/storage/rows.ts"

interface KeyRow {
  readonly id: string
  readonly token_hint: string
  readonly key_name: string | null
  readonly key_alias: string | null
  readonly max_budget: string | null
  readonly models: ReadonlyArray<string>
  readonly rpm_limit: number | null
  readonly tpm_limit: number | null
  readonly expires: Date | null
  readonly blocked: boolean
  readonly created_at: Date
  readonly updated_at: Date
}

export const keyOf = (row: KeyRow): DeveloperKey => ({
  id: row.id,
  keyName: row.key_name,
  keyAlias: row.key_alias,
  tokenHint: row.token_hint,
  maxBudget: nanosOf(row.max_budget),
  models: row.models,
  rpmLimit: row.rpm_limit,
  tpmLimit: row.tpm_limit,
  expires: row.expires === null ? null : row.expires.getTime(),
  blocked: row.blocked,
  createdAt: row.created_at.getTime(),
  updatedAt: row.updated_at.getTime()
})

/** What may bind a developer. */
export interface GrantRow {
  readonly deleted: boolean
  readonly models: ReadonlyArray<string>
  /** The smaller of the user's own budget and that of the user's tier. */
  readonly ceiling: string | null
}

/** Statements on what a developer owns: live keys of its user id and tenant. */
export const makeKeyQueries = (sql: SqlClient.SqlClient) => {
  const own = (developer: DeveloperPrincipal): Statement.Fragment =>
    sql`user_id = ${developer.userId} AND tenant = ${developer.tenant} AND discarded_at IS NULL`
  const columns = sql.literal(
    "id, token_hint, key_name, key_alias, max_budget, models, rpm_limit, tpm_limit, expires, blocked, created_at, updated_at"
  )
  const grant = (developer: DeveloperPrincipal, lock: "" | "FOR NO KEY UPDATE OF u"): Statement.Statement<GrantRow> =>
    sql<GrantRow>`SELECT u.deleted_at IS NOT NULL AS deleted, u.models,
        least(u.max_budget, t.max_budget)::text AS ceiling
      FROM public.users u LEFT JOIN public.budgets t ON t.tenant = u.tenant AND t.budget_id = u.budget_id
      WHERE u.id = ${developer.userId} AND u.tenant = ${developer.tenant} ${sql.literal(lock)}`

  return {
    grant: (developer: DeveloperPrincipal) => grant(developer, ""),

    /**
     * One creation of a developer at a time, in every process, until the transaction ends; and nobody changes the grant
     * meanwhile. The advisory lock stands for owners whom no row of `users` names.
     */
    lockDeveloper: (developer: DeveloperPrincipal) =>
      sql`SELECT pg_advisory_xact_lock(hashtext('sluice developer keys'),
        hashtext(${`${developer.tenant}\n${developer.userId}`}))`,
    lockGrant: (developer: DeveloperPrincipal) => grant(developer, "FOR NO KEY UPDATE OF u"),

    /** What live keys take of the grant, and how many of them the developer made. */
    allocated: (developer: DeveloperPrincipal, actor: string) =>
      sql<{ readonly allocated: string; readonly made: number }>`SELECT coalesce(sum(max_budget), 0)::text AS allocated,
          (count(*) FILTER (WHERE created_by = ${actor}))::int AS made
        FROM public.api_keys WHERE ${own(developer)}`,

    lockOwn: (developer: DeveloperPrincipal, id: string) =>
      isUuid(id)
        ? sql<{ readonly id: string }>`SELECT id FROM public.api_keys
            WHERE id = ${id}::uuid AND ${own(developer)} FOR UPDATE`
        : sql<{ readonly id: string }>`SELECT id FROM public.api_keys WHERE false`,

    find: (developer: DeveloperPrincipal, id: string) =>
      sql<KeyRow>`SELECT ${columns} FROM public.api_keys WHERE id = ${id}::uuid AND ${own(developer)}`,

    list: (developer: DeveloperPrincipal, limit: number, offset: number) =>
      sql<KeyRow>`SELECT ${columns} FROM public.api_keys WHERE ${own(developer)}
        ORDER BY created_at DESC, id DESC LIMIT ${limit}::int OFFSET ${offset}::int`
  }
}
