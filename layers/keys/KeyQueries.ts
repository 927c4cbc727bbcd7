import { Effect } from "effect"
import type { SqlClient, SqlError, Statement } from "effect/sql"
import { isUuid } from "#domain/ids.ts"
import type { Key, KeyChange, KeyDraft, KeyFilter, KeyTarget } from "#domain/keys.ts"
import { dollarsText, type Nanos } from "#domain/money.ts"
import type { RowScope } from "#domain/principal.ts"
import { isApiKey, type KeyRow, type PolicyRow, tokenHash, tokenHint } from "#layers/keys/KeyRows.ts"

const columns = [
  "id",
  "tenant",
  "token_hash",
  "token_hint",
  "key_name",
  "key_alias",
  "user_id",
  "team_id",
  "organization_id",
  "max_budget",
  "models",
  "rpm_limit",
  "tpm_limit",
  "budget_id",
  "expires",
  "metadata",
  "blocked",
  "created_by",
  "created_at",
  "updated_at"
] as const

const dollars = (nanos: Nanos | null): string | null => (nanos === null ? null : dollarsText(nanos))
const date = (millis: number | null): Date | null => (millis === null ? null : new Date(millis))

/** Takes `%`, `_` and `\` of a LIKE pattern literally. */
export const likeLiteral = (text: string): string => text.replace(/[\\%_]/g, "\\$&")

/** The statements on `api_keys`. Discarded rows exist for none of them. */
export const makeKeyQueries = (sql: SqlClient.SqlClient) => {
  const all = sql.literal(columns.join(", "))
  const prefixed = sql.literal(columns.map((column) => `k.${column}`).join(", "))

  const within = (scope: RowScope): Statement.Fragment =>
    sql.and([
      sql`discarded_at IS NULL`,
      ...(scope.tenant === undefined ? [] : [sql`tenant = ${scope.tenant}`]),
      ...(scope.organizationId === undefined ? [] : [sql`organization_id = ${scope.organizationId}`])
    ])

  /** The first of token, id and alias that is given decides; what cannot name a key names none. */
  const named = (target: KeyTarget): Statement.Fragment => {
    if (target.token !== undefined) {
      return isApiKey(target.token) ? sql`token_hash = ${tokenHash(target.token)}` : sql`false`
    }
    if (target.id !== undefined) return isUuid(target.id) ? sql`id = ${target.id}::uuid` : sql`false`
    return target.alias === undefined ? sql`false` : sql`key_alias = ${target.alias}`
  }

  const newest = (target: KeyTarget, scope: RowScope, lock: "FOR UPDATE" | ""): Statement.Statement<KeyRow> =>
    sql<KeyRow>`SELECT ${all} FROM api_keys WHERE ${named(target)} AND ${within(scope)}
      ORDER BY created_at DESC, id DESC LIMIT 1 ${sql.literal(lock)}`

  const assignments = (change: KeyChange): ReadonlyArray<Statement.Fragment> => [
    ...(change.keyName === undefined ? [] : [sql`key_name = ${change.keyName}`]),
    ...(change.keyAlias === undefined ? [] : [sql`key_alias = ${change.keyAlias}`]),
    ...(change.maxBudget === undefined ? [] : [sql`max_budget = ${dollars(change.maxBudget)}`]),
    ...(change.models === undefined ? [] : [sql`models = ${change.models}`]),
    ...(change.rpmLimit === undefined ? [] : [sql`rpm_limit = ${change.rpmLimit}`]),
    ...(change.tpmLimit === undefined ? [] : [sql`tpm_limit = ${change.tpmLimit}`]),
    ...(change.budgetId === undefined ? [] : [sql`budget_id = ${change.budgetId}`]),
    ...(change.expires === undefined ? [] : [sql`expires = ${date(change.expires)}`]),
    ...(change.teamId === undefined ? [] : [sql`team_id = ${change.teamId}`]),
    ...(change.metadata === undefined ? [] : [sql`metadata = ${JSON.stringify(change.metadata)}`])
  ]

  const filtered = (filter: KeyFilter, scope: RowScope): Statement.Fragment => {
    const pattern = `%${likeLiteral(filter.search ?? "")}%`
    return sql.and([
      within(scope),
      ...(filter.userId === undefined ? [] : [sql`user_id = ${filter.userId}`]),
      ...(filter.teamId === undefined ? [] : [sql`team_id = ${filter.teamId}`]),
      ...(filter.organizationId === undefined ? [] : [sql`organization_id = ${filter.organizationId}`]),
      ...(filter.search === undefined || filter.search === ""
        ? []
        : [
            // To the letter what the index api_keys_search is over.
            sql`(coalesce(key_name, '') || E'\\n' || coalesce(key_alias, '') || E'\\n' || coalesce(user_id, '') || E'\\n' || id::text) ILIKE ${pattern}`
          ])
    ])
  }

  const isSearch = (filter: KeyFilter): boolean => filter.search !== undefined && filter.search !== ""

  return {
    insert: (id: string, token: string, draft: KeyDraft, now: number): Statement.Statement<KeyRow> =>
      sql<KeyRow>`INSERT INTO api_keys (
          id, tenant, token_hash, token_hint, key_name, key_alias, user_id, team_id, organization_id, max_budget, models,
          rpm_limit, tpm_limit, budget_id, expires, metadata, created_by, created_at, updated_at
        ) VALUES (
          ${id}, ${draft.tenant}, ${tokenHash(token)}, ${tokenHint(token)}, ${draft.keyName}, ${draft.keyAlias},
          ${draft.userId}, ${draft.teamId}, ${draft.organizationId}, ${dollars(draft.maxBudget)}, ${draft.models},
          ${draft.rpmLimit}, ${draft.tpmLimit}, ${draft.budgetId ?? null}, ${date(draft.expires)}, ${JSON.stringify(draft.metadata)},
          ${draft.actor}, ${date(now)}, ${date(now)}
        ) RETURNING ${all}`,

    find: (target: KeyTarget, scope: RowScope) => newest(target, scope, ""),

    /** Keeps the row until the transaction ends. */
    lock: (target: KeyTarget, scope: RowScope) => newest(target, scope, "FOR UPDATE"),

    update: (id: string, change: KeyChange, now: number) =>
      sql`UPDATE api_keys SET ${sql.join(", ", false)([...assignments(change), sql`updated_at = ${date(now)}`])}
        WHERE id = ${id}::uuid`,

    setBlocked: (id: string, blocked: boolean, now: number) =>
      sql`UPDATE api_keys SET blocked = ${blocked}, updated_at = ${date(now)} WHERE id = ${id}::uuid`,

    replaceToken: (id: string, token: string, now: number): Statement.Statement<KeyRow> =>
      sql<KeyRow>`UPDATE api_keys
        SET token_hash = ${tokenHash(token)}, token_hint = ${tokenHint(token)}, updated_at = ${date(now)}
        WHERE id = ${id}::uuid RETURNING ${all}`,

    discard: (targets: ReadonlyArray<KeyTarget>, scope: RowScope, now: number): Statement.Statement<KeyRow> => {
      const tokens = targets.flatMap(({ token }) => (token !== undefined && isApiKey(token) ? [tokenHash(token)] : []))
      const ids = targets.flatMap(({ id }) => (id !== undefined && isUuid(id) ? [id] : []))
      const aliases = targets.flatMap(({ alias }) => (alias === undefined ? [] : [alias]))
      return sql<KeyRow>`UPDATE api_keys SET discarded_at = ${date(now)}, updated_at = ${date(now)}
        WHERE (token_hash = ANY(${tokens}::bytea[]) OR id = ANY(${ids}::text[]::uuid[]) OR key_alias = ANY(${aliases}::text[])) AND ${within(scope)}
        RETURNING ${all}`
    },

    list: (filter: KeyFilter, scope: RowScope): Statement.Statement<KeyRow> => {
      const page = sql`ORDER BY created_at DESC, id DESC
        LIMIT ${filter.pageSize}::int OFFSET ${(filter.page - 1) * filter.pageSize}::int`
      // A search is narrowed down first: read in the order of the page, a rare name costs the whole table.
      return isSearch(filter)
        ? sql<KeyRow>`WITH found AS MATERIALIZED (SELECT id AS key_id FROM api_keys WHERE ${filtered(filter, scope)})
            SELECT ${all} FROM api_keys JOIN found ON id = key_id ${page}`
        : sql<KeyRow>`SELECT ${all} FROM api_keys WHERE ${filtered(filter, scope)} ${page}`
    },

    count: (filter: KeyFilter, scope: RowScope): Effect.Effect<number, SqlError.SqlError> =>
      Effect.map(
        isSearch(filter) || filter.userId !== undefined || filter.teamId !== undefined
          ? sql<{
              readonly total: number
            }>`SELECT count(*)::int AS total FROM api_keys WHERE ${filtered(filter, scope)}`
          : sql<{ readonly total: number }>`SELECT coalesce(sum(live), 0)::int AS total FROM api_key_counts
              WHERE ${sql.and([
                sql`true`,
                ...(scope.tenant === undefined ? [] : [sql`tenant = ${scope.tenant}`]),
                ...(scope.organizationId === undefined ? [] : [sql`organization_id = ${scope.organizationId}`]),
                ...(filter.organizationId === undefined ? [] : [sql`organization_id = ${filter.organizationId}`])
              ])}`,
        ([row]) => row?.total ?? 0
      ),

    /** The usable key that a principal names: its row id, its alias or its owner. */
    byPrincipal: (principal: string, tenant: string, now: number) =>
      sql<Pick<KeyRow, "token_hash">>`SELECT token_hash FROM api_keys
        WHERE (id = ${isUuid(principal) ? principal : null}::text::uuid OR key_alias = ${principal} OR user_id = ${principal})
          AND discarded_at IS NULL AND NOT blocked AND (expires IS NULL OR expires > ${date(now)})
        ORDER BY tenant = ${tenant} DESC, id::text = ${principal} DESC, coalesce(key_alias = ${principal}, false) DESC,
          created_at DESC, id DESC
        LIMIT 1`,

    /** By the base64 of the full SHA-256, with everything on its chain. */
    byDigests: (digests: ReadonlyArray<string>): Statement.Statement<PolicyRow> =>
      sql<PolicyRow>`SELECT ${prefixed}, c.refused, c.chain_organization_id, c.owners FROM api_keys k
        CROSS JOIN LATERAL public.policy_chain(k.tenant, k.id::text, k.user_id, k.team_id, k.organization_id, k.budget_id) c
        WHERE k.token_hash = ANY(${digests.map((digest) => Buffer.from(digest, "base64"))}) AND k.discarded_at IS NULL`
  }
}

/** What an audit entry tells of a key. The token is not known here, and metadata is the caller's own. */
export const auditedKey = (key: Key) => ({
  key_name: key.keyName,
  key_alias: key.keyAlias,
  user_id: key.userId,
  team_id: key.teamId,
  organization_id: key.organizationId,
  max_budget: dollars(key.maxBudget),
  models: key.models,
  rpm_limit: key.rpmLimit,
  tpm_limit: key.tpmLimit,
  budget_id: key.budgetId,
  expires: key.expires === null ? null : new Date(key.expires).toISOString()
})

/** What an audit entry tells of a change: the new values, of metadata only that it was written. */
export const auditedChange = (change: KeyChange) => ({
  ...(change.keyName === undefined ? {} : { key_name: change.keyName }),
  ...(change.keyAlias === undefined ? {} : { key_alias: change.keyAlias }),
  ...(change.maxBudget === undefined ? {} : { max_budget: dollars(change.maxBudget) }),
  ...(change.models === undefined ? {} : { models: change.models }),
  ...(change.rpmLimit === undefined ? {} : { rpm_limit: change.rpmLimit }),
  ...(change.tpmLimit === undefined ? {} : { tpm_limit: change.tpmLimit }),
  ...(change.budgetId === undefined ? {} : { budget_id: change.budgetId }),
  ...(change.expires === undefined
    ? {}
    : { expires: change.expires === null ? null : new Date(change.expires).toISOString() }),
  ...(change.teamId === undefined ? {} : { team_id: change.teamId }),
  ...(change.metadata === undefined ? {} : { metadata: "replaced" })
})
