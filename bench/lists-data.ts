/** What bench/lists.ts looks at: many rows, made by the database itself. */
import { Duration, Effect } from "effect"
import type { SqlClient } from "effect/sql"
import { StatementDeadline } from "#layers/storage/DatabasePostgres.ts"

export interface Sizes {
  readonly keys: number
  readonly calls: number
}

/** The developer who made 1 % of all calls, and the key and session that it is measured with. */
export const hotUser = "user-0"
export const hotToken = `sk-${"h".repeat(43)}`
export const hotSession = `gws_${"h".repeat(43)}`
/** Rows whose number ends in 9 belong to this tenant, the others to the public scope. */
export const tenant = "acme"
export const tenantOrganization = "org-9"

const days = 60
const uuid = (kind: number, n: string) =>
  `('0197a3f0-0000-7000-8${kind}00-' || lpad(to_hex((${n})::bigint), 12, '0'))::uuid`
const tenantOf = (n: string) => `CASE WHEN (${n}) % 10 = 9 THEN '${tenant}' ELSE '' END`
const stamps = "'bench', now() - n * interval '1 second', now() - n * interval '1 second'"

/** Fills a table without its indexes and builds them afterwards: that is several times as fast. */
const fill = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, table: string, statement: string) {
  const indexes = yield* sql.unsafe<{ name: string; definition: string }>(
    `SELECT i.indexname AS name, replace(i.indexdef, ' ON ONLY ', ' ON ') AS definition FROM pg_indexes i
     WHERE i.schemaname = 'public' AND i.tablename = '${table}'
       AND NOT EXISTS (SELECT FROM pg_constraint c WHERE c.conname = i.indexname AND c.conrelid = '${table}'::regclass)`
  )
  for (const { name } of indexes) yield* sql.unsafe(`DROP INDEX ${name}`).unprepared
  yield* sql.unsafe(statement).unprepared
  for (const { definition } of indexes) yield* sql.unsafe(definition).unprepared
})

/** The months of the past, as they would have been made ahead of their time. */
const pastMonths = (table: string) => `DO $$ BEGIN
  FOR back IN 1..3 LOOP
    EXECUTE format('CREATE TABLE IF NOT EXISTS ${table}_%s PARTITION OF ${table} FOR VALUES FROM (%L) TO (%L)',
      to_char(date_trunc('month', now()) - back * interval '1 month', 'YYYY_MM'),
      date_trunc('month', now()) - back * interval '1 month',
      date_trunc('month', now()) - (back - 1) * interval '1 month');
  END LOOP;
END $$`

const tables = ({ calls, keys }: Sizes): ReadonlyArray<readonly [table: string, statement: string]> => {
  const users = Math.ceil(keys / 10)
  const active = Math.ceil(keys / 50)
  const keyOfCall = `CASE WHEN n % 100 = 0 THEN (n / 100 % 10) * ${users} ELSE (n::bigint * 7919) % ${active} END`
  return [
    [
      "budgets",
      `INSERT INTO budgets (tenant, budget_id, max_budget, budget_duration, created_by, created_at, updated_at)
      SELECT ${tenantOf("n")}, 'budget-' || n, 100, '1mo', ${stamps} FROM generate_series(0, 199) n`
    ],
    [
      "organizations",
      `INSERT INTO organizations (id, tenant, organization_alias, created_by, created_at, updated_at)
      SELECT 'org-' || n, ${tenantOf("n")}, 'Organization ' || n, ${stamps} FROM generate_series(0, 999) n`
    ],
    [
      "teams",
      `INSERT INTO teams (id, tenant, team_alias, organization_id, created_by, created_at, updated_at)
      SELECT 'team-' || n, ${tenantOf("n")}, 'Team ' || n, 'org-' || n % 1000, ${stamps} FROM generate_series(0, 9999) n`
    ],
    [
      "users",
      `INSERT INTO users (id, tenant, user_email, user_role, name, created_by, created_at, updated_at)
      SELECT 'user-' || n, ${tenantOf("n")}, 'user' || n || '@example.org',
        CASE n % 5 WHEN 0 THEN 'developer' ELSE 'user' END, 'User ' || n, ${stamps} FROM generate_series(0, ${users - 1}) n`
    ],
    [
      "organization_members",
      `INSERT INTO organization_members (organization_id, user_id, role, created_at)
      SELECT 'org-' || n % 1000, 'user-' || n, 'member', now() FROM generate_series(0, ${users - 1}) n`
    ],
    [
      "customers",
      `INSERT INTO customers (id, tenant, end_user_id, created_by, created_at, updated_at)
      SELECT 'customer-' || n, ${tenantOf("n")}, 'end-user-' || n, ${stamps} FROM generate_series(0, ${users - 1}) n`
    ],
    [
      "api_keys",
      `INSERT INTO api_keys (id, tenant, token_hash, token_hint, key_name, key_alias, user_id, team_id,
        organization_id, created_by, created_at, updated_at, discarded_at)
      SELECT ${uuid(1, "n")}, ${tenantOf("n")}, sha256(n::text::bytea), 'hint', 'Key ' || n, 'alias-' || n,
        'user-' || n % ${users}, 'team-' || n % 10000, 'org-' || n % 1000, ${stamps},
        CASE WHEN n % 20 = 3 THEN now() END FROM generate_series(0, ${keys - 1}) n`
    ],
    [
      "provenance_entries",
      `INSERT INTO provenance_entries
        (sequence_number, id, action, actor, resource_type, resource_id, payload, payload_hash, created_at)
      SELECT n + 1, ${uuid(2, "n")}, 'key.created', CASE n % 2 WHEN 0 THEN 'master_key' ELSE 'user:user-' || n % ${users} END,
        'key', ${uuid(1, "n")}::text, '{}', 'hash', now() - (${keys} - n) * interval '1 second'
      FROM generate_series(0, ${keys - 1}) n`
    ],
    [
      "spend_logs",
      `INSERT INTO spend_logs (call_id, recorded_at, request_id, started_at, key_id, user_id, team_id,
        organization_id, operation, model, provider, status, http_status, stream, input_tokens, cache_read_tokens,
        cache_write_tokens, output_tokens, reasoning_tokens, audio_input_tokens, audio_output_tokens, images, seconds,
        estimated, priced, spend, duration_ms)
      SELECT ${uuid(3, "n")}, at, 'request-' || n, at - interval '1 second', ${uuid(1, "key")}, 'user-' || key % ${users},
        'team-' || key % 10000, 'org-' || key % 1000, 'chat', 'model-' || n % 20, 'openai', 'success', 200, false, 100, 0, 0,
        50, 0, 0, 0, 0, 0, false, true, 0.001, 900
      FROM (SELECT n, ${keyOfCall} AS key, now() - (${calls} - n) * interval '${days} days' / ${calls} AS at
        FROM generate_series(1, ${calls}) n) AS made`
    ],
    [
      "daily_usage",
      `INSERT INTO daily_usage (day, key_id, user_id, team_id, organization_id, end_user_id, model, requests,
        prompt_tokens, completion_tokens, spend)
      SELECT (recorded_at AT TIME ZONE 'UTC')::date, key_id, user_id, team_id, organization_id, '', 'all', count(*),
        sum(input_tokens), sum(output_tokens), sum(spend) FROM spend_logs GROUP BY 1, 2, 3, 4, 5`
    ],
    [
      "key_usage",
      `INSERT INTO key_usage (key_id, requests, prompt_tokens, completion_tokens, spend)
      SELECT key_id, sum(requests), sum(prompt_tokens), sum(completion_tokens), sum(spend) FROM daily_usage GROUP BY 1`
    ],
    [
      "guardrail_logs",
      `INSERT INTO guardrail_logs (id, created_at, request_id, call_id, guardrail_id, guardrail_name,
        organization_id, status, duration_ms)
      SELECT ${uuid(4, "n")}, now() - (${keys} - n) * interval '${days} days' / ${keys}, 'request-' || n, ${uuid(3, "n")},
        'guardrail-' || n % 50, 'Guardrail ' || n % 50, 'org-' || n % 1000, CASE n % 3 WHEN 0 THEN 'blocked' ELSE 'passed' END, 1
      FROM generate_series(1, ${keys}) n`
    ]
  ]
}

/** Fills a migrated database; returns the seconds that it took, table by table. */
export const makeRows = (sql: SqlClient.SqlClient, sizes: Sizes) =>
  Effect.gen(function* () {
    const took: Array<readonly [string, number]> = []
    for (const table of ["spend_logs", "guardrail_logs"]) yield* sql.unsafe(pastMonths(table)).unprepared
    for (const [table, statement] of tables(sizes)) {
      const began = performance.now()
      yield* fill(sql, table, statement)
      took.push([table, (performance.now() - began) / 1000])
    }
    yield* sql.unsafe(`UPDATE provenance_head SET sequence_number = ${sizes.keys}, payload_hash = 'hash'`).unprepared
    yield* sql.unsafe(`UPDATE api_keys SET token_hash = sha256('${hotToken}'::bytea) WHERE id = ${uuid(1, "0")}`)
      .unprepared
    yield* sql.unsafe(`INSERT INTO developer_sessions (id, token_hash, user_id, created_at, expires_at)
      VALUES (${uuid(5, "0")}, sha256('${hotSession}'::bytea), '${hotUser}', now(), now() + interval '1 hour')`)
      .unprepared
    const began = performance.now()
    // Index-only scans need the visibility map, which autovacuum keeps in a running database.
    yield* sql.unsafe("VACUUM (ANALYZE)").unprepared
    took.push(["vacuum", (performance.now() - began) / 1000])
    return took
  }).pipe(Effect.provideService(StatementDeadline, Duration.infinity))
