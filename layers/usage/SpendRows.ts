import * as PgTypes from "@effect/sql-pg/PgTypes"
import { Effect, Result } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { uuidv7 } from "#domain/ids.ts"
import { dollarsText } from "#domain/money.ts"
import { completionTokens, promptTokens } from "#domain/usage.ts"
import { Rollups, type Rollup } from "#layers/usage/rollups.ts"
import { BudgetLedger, type Charge } from "#services/budgets/BudgetLedger.ts"
import { Outbox, type OutboxEvent } from "#services/callbacks/Outbox.ts"
import { Provenance, type ProvenanceEntry } from "#services/provenance/Provenance.ts"
import { Tenants } from "#services/tenants/Tenants.ts"
import type { Outcome } from "#services/usage/UsageLedger.ts"

interface Column<A> {
  readonly name: string
  readonly type: "uuid" | "text" | "timestamptz" | "int4" | "int8" | "bool" | "float8"
  readonly of: (row: A) => unknown
  /** What is inserted, where it is not the element as it comes. */
  readonly as?: string
}

/** Amounts travel as integers, which cost less than decimal text to write and to read. */
const dollars = (name: string) => `${name}::numeric * 0.000000001`

const spendColumns: ReadonlyArray<Column<Outcome>> = [
  { name: "call_id", type: "uuid", of: (o) => o.callId },
  { name: "recorded_at", type: "timestamptz", of: (o) => o.recordedAt },
  { name: "request_id", type: "text", of: (o) => o.requestId },
  { name: "started_at", type: "timestamptz", of: (o) => o.startedAt },
  { name: "key_id", type: "uuid", of: (o) => o.keyId },
  { name: "user_id", type: "text", of: (o) => o.userId },
  { name: "team_id", type: "text", of: (o) => o.teamId },
  { name: "organization_id", type: "text", of: (o) => o.organizationId },
  { name: "end_user_id", type: "text", of: (o) => o.endUserId },
  { name: "operation", type: "text", of: (o) => o.operation },
  { name: "model", type: "text", of: (o) => o.model },
  { name: "provider", type: "text", of: (o) => o.provider },
  { name: "upstream_model", type: "text", of: (o) => o.upstreamModel },
  { name: "deployment_id", type: "text", of: (o) => o.deploymentId },
  { name: "status", type: "text", of: (o) => o.status },
  { name: "http_status", type: "int4", of: (o) => o.httpStatus },
  { name: "error_code", type: "text", of: (o) => o.errorCode },
  { name: "stream", type: "bool", of: (o) => o.stream },
  { name: "input_tokens", type: "int4", of: (o) => o.usage.input },
  { name: "cache_read_tokens", type: "int4", of: (o) => o.usage.cacheRead },
  { name: "cache_write_tokens", type: "int4", of: (o) => o.usage.cacheWrite },
  { name: "output_tokens", type: "int4", of: (o) => o.usage.output },
  { name: "reasoning_tokens", type: "int4", of: (o) => o.usage.reasoning },
  { name: "audio_input_tokens", type: "int4", of: (o) => o.usage.audioInput },
  { name: "audio_output_tokens", type: "int4", of: (o) => o.usage.audioOutput },
  { name: "images", type: "int4", of: (o) => o.usage.images },
  { name: "seconds", type: "float8", of: (o) => o.usage.seconds },
  { name: "estimated", type: "bool", of: (o) => o.usage.estimated },
  { name: "priced", type: "bool", of: (o) => o.priced },
  { name: "spend", type: "int8", of: (o) => o.cost, as: dollars("spend") },
  { name: "duration_ms", type: "int4", of: (o) => Math.round(o.durationMs) },
  { name: "first_byte_ms", type: "int4", of: (o) => (o.firstByteMs === null ? null : Math.round(o.firstByteMs)) }
]

const sums: ReadonlyArray<Column<Rollup>> = [
  { name: "requests", type: "int8", of: (r) => BigInt(r.requests) },
  { name: "prompt_tokens", type: "int8", of: (r) => BigInt(r.promptTokens) },
  { name: "completion_tokens", type: "int8", of: (r) => BigInt(r.completionTokens) },
  { name: "spend", type: "int8", of: (r) => r.nanos, as: dollars("spend") }
]

const dailyKey: ReadonlyArray<Column<Rollup>> = [
  { name: "day", type: "int4", of: (r) => r.day, as: "date '1970-01-01' + day" },
  { name: "key_id", type: "uuid", of: (r) => r.keyId },
  { name: "model", type: "text", of: (r) => r.model },
  { name: "user_id", type: "text", of: (r) => r.userId },
  { name: "team_id", type: "text", of: (r) => r.teamId },
  { name: "organization_id", type: "text", of: (r) => r.organizationId },
  { name: "end_user_id", type: "text", of: (r) => r.endUserId }
]

const keyKey: ReadonlyArray<Column<Rollup>> = [{ name: "key_id", type: "uuid", of: (r) => r.keyId }]

interface GuardrailRow {
  readonly outcome: Outcome
  readonly event: Outcome["guardrails"][number]
}

const guardrailColumns: ReadonlyArray<Column<GuardrailRow>> = [
  { name: "id", type: "uuid", of: (r) => uuidv7(r.outcome.recordedAt) },
  { name: "created_at", type: "timestamptz", of: (r) => r.outcome.recordedAt },
  { name: "request_id", type: "text", of: (r) => r.outcome.requestId },
  { name: "call_id", type: "uuid", of: (r) => r.outcome.callId },
  { name: "guardrail_id", type: "text", of: (r) => r.event.guardrailId },
  { name: "guardrail_name", type: "text", of: (r) => r.event.guardrailName },
  { name: "organization_id", type: "text", of: (r) => r.outcome.organizationId },
  { name: "status", type: "text", of: (r) => r.event.status },
  { name: "stage", type: "text", of: (r) => r.event.stage },
  { name: "duration_ms", type: "float8", of: (r) => r.event.durationMs },
  { name: "confidence", type: "float8", of: (r) => r.event.confidence },
  { name: "original_content", type: "text", of: (r) => r.event.originalContent },
  { name: "modified_content", type: "text", of: (r) => r.event.modifiedContent }
]

const parameters = <A>(columns: ReadonlyArray<Column<A>>, rows: ReadonlyArray<A>): ReadonlyArray<PgTypes.Parameter> =>
  columns.map((column) => Result.getOrThrow(PgTypes.array(rows.map(column.of), PgTypes.OID[column.type])))

/** `INSERT INTO table (…) SELECT … FROM unnest(…)`: one array a column costs the least on both sides. */
const insertFromArrays = <A>(table: string, columns: ReadonlyArray<Column<A>>): string => {
  const names = columns.map((column) => column.name).join(", ")
  const values = columns.map((column) => column.as ?? column.name).join(", ")
  const arrays = columns.map((column, index) => `$${index + 1}::${column.type}[]`).join(", ")
  return `INSERT INTO ${table} (${names}) SELECT ${values} FROM unnest(${arrays}) AS t (${names})`
}

const addOnConflict = (table: string, key: ReadonlyArray<Column<Rollup>>): string =>
  `ON CONFLICT (${key.map((column) => column.name).join(", ")}) DO UPDATE SET ${sums
    .map(({ name }) => `${name} = ${table}.${name} + excluded.${name}`)
    .join(", ")}`

const statementsFor = (schema: string) => ({
  spend: `WITH inserted AS (
    ${insertFromArrays(`${schema}.spend_logs`, spendColumns)} ON CONFLICT DO NOTHING RETURNING call_id
  ) SELECT id::text FROM unnest($1::uuid[]) AS t (id) WHERE id NOT IN (SELECT call_id FROM inserted)`,
  daily: `${insertFromArrays(`${schema}.daily_usage AS daily_usage`, [...dailyKey, ...sums])} ${addOnConflict("daily_usage", dailyKey)}`,
  key: `${insertFromArrays(`${schema}.key_usage AS key_usage`, [...keyKey, ...sums])} ${addOnConflict("key_usage", keyKey)}`,
  guardrails: insertFromArrays(`${schema}.guardrail_logs`, guardrailColumns)
})

const provenanceOf = (outcome: Outcome): ProvenanceEntry => ({
  action: outcome.action ?? `gen_ai.${outcome.operation}`,
  actor: outcome.actor ?? (outcome.keyId === null ? "master_key" : `key:${outcome.keyId}`),
  resourceType: "model_call",
  resourceId: outcome.callId,
  requestId: outcome.requestId,
  createdAt: outcome.recordedAt,
  payload: {
    completion_tokens: completionTokens(outcome.usage),
    cost: dollarsText(outcome.cost),
    model: outcome.model,
    prompt_tokens: promptTokens(outcome.usage),
    provider: outcome.provider,
    request_id: outcome.requestId,
    status: outcome.status,
    upstream_model: outcome.upstreamModel
  }
})

/**
 * What callbacks hear of a blocked call: who blocked it, not what was in it, which stays in the guardrail log. A guardrail
 * that failed itself is named where none blocked, because then it did.
 */
const blockedEventsOf = (outcome: Outcome): ReadonlyArray<OutboxEvent> => {
  if (outcome.status !== "blocked") return []
  const blocking = outcome.guardrails.filter(({ status }) => status === "blocked")
  const named = blocking.length > 0 ? blocking : outcome.guardrails.filter(({ status }) => status === "error")
  return named.map((event) => ({
    type: "guardrail.blocked",
    tenant: outcome.tenant,
    organizationId: outcome.organizationId,
    occurredAt: outcome.recordedAt,
    data: {
      call_id: outcome.callId,
      confidence: event.confidence,
      end_user_id: outcome.endUserId,
      guardrail_id: event.guardrailId,
      guardrail_name: event.guardrailName,
      key_id: outcome.keyId,
      model: outcome.model,
      operation: outcome.operation,
      organization_id: outcome.organizationId,
      request_id: outcome.requestId,
      stage: event.stage,
      status: event.status,
      team_id: outcome.teamId,
      user_id: outcome.userId
    }
  }))
}

const chargesOf = (outcomes: ReadonlyArray<Outcome>): ReadonlyArray<Charge> =>
  outcomes.flatMap((outcome) => outcome.charges)

/** Writes outcomes into PostgreSQL. */
export interface SpendRows {
  /**
   * One transaction for all of them: spend rows, then for those that were really new the provenance entries, the
   * guardrail log, the rollups and the charges. Writing the same outcome again changes nothing. Returns the charges that
   * are in their accounts now and were posted by this process.
   *
   * `tried` remembers the calls that a transaction has held: when the answer to its COMMIT got lost and the next attempt
   * finds them there already, they were this process's own.
   */
  readonly write: (
    outcomes: ReadonlyArray<Outcome>,
    tried: Set<string>
  ) => Effect.Effect<ReadonlyArray<Charge>, SqlError.SqlError>
}

/**
 * Locks are taken in one order by every process: the spend rows are each process's own; then, tenant by tenant in the
 * order of their schemas, the head of the provenance chain, behind which the hot rows of the rollups are this
 * transaction's alone; the budget accounts last, so that they are held for the shortest time.
 */
export const makeSpendRows: Effect.Effect<
  SpendRows,
  never,
  SqlClient.SqlClient | BudgetLedger | Outbox | Provenance | Tenants
> = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const budgets = yield* BudgetLedger
  const provenance = yield* Provenance
  const outbox = yield* Outbox
  const tenants = yield* Tenants
  const statements = new Map<string, ReturnType<typeof statementsFor>>()
  const statementsOf = (schema: string) => {
    const known = statements.get(schema)
    if (known !== undefined) return known
    const made = statementsFor(schema)
    statements.set(schema, made)
    return made
  }

  const insertSpend = Effect.fnUntraced(function* (schema: string, outcomes: ReadonlyArray<Outcome>) {
    const distinct = new Map(outcomes.map((outcome) => [outcome.callId, outcome]))
    const rows = distinct.size === outcomes.length ? outcomes : [...distinct.values()]
    const known = yield* sql.unsafe<{ id: string }>(statementsOf(schema).spend, parameters(spendColumns, rows))
    if (known.length === 0) return rows
    const ids = new Set(known.map((row) => row.id))
    return rows.filter((outcome) => !ids.has(outcome.callId.toLowerCase()))
  })

  const writeTenant = Effect.fnUntraced(function* (tenant: string, schema: string, outcomes: ReadonlyArray<Outcome>) {
    const statement = statementsOf(schema)
    // Before the chain, whose head stays locked until the commit.
    yield* outbox.append(outcomes.flatMap(blockedEventsOf))
    yield* provenance.append(tenant, outcomes.map(provenanceOf))
    const guarded = outcomes.flatMap((outcome) => outcome.guardrails.map((event) => ({ outcome, event })))
    if (guarded.length > 0) yield* sql.unsafe(statement.guardrails, parameters(guardrailColumns, guarded))
    const rollups = new Rollups(outcomes)
    yield* sql.unsafe(statement.daily, parameters([...dailyKey, ...sums], rollups.daily))
    yield* sql.unsafe(statement.key, parameters([...keyKey, ...sums], rollups.keys))
  })

  const write = Effect.fnUntraced(function* (outcomes: ReadonlyArray<Outcome>, tried: Set<string>) {
    const groups = new Map<string, { readonly tenant: string; readonly outcomes: Array<Outcome> }>()
    for (const outcome of outcomes) {
      const schema = yield* tenants.schemaOf(outcome.tenant)
      const group = groups.get(schema)
      if (group === undefined) groups.set(schema, { tenant: outcome.tenant, outcomes: [outcome] })
      else group.outcomes.push(outcome)
    }
    const ordered = [...groups].sort(([a], [b]) => (a < b ? -1 : 1))
    const fresh = yield* sql.withTransaction(
      Effect.gen(function* () {
        const fresh: Array<readonly [schema: string, tenant: string, outcomes: ReadonlyArray<Outcome>]> = []
        for (const [schema, group] of ordered) {
          const inserted = yield* insertSpend(schema, group.outcomes)
          if (inserted.length > 0) fresh.push([schema, group.tenant, inserted])
        }
        for (const [schema, tenant, inserted] of fresh) yield* writeTenant(tenant, schema, inserted)
        const all = fresh.flatMap(([, , inserted]) => inserted)
        const charges = chargesOf(all)
        if (charges.length > 0) {
          for (const outcome of all) tried.add(outcome.callId)
          yield* budgets.post(charges)
        }
        return all
      })
    )
    if (tried.size === 0) return []
    if (fresh.length === outcomes.length) {
      for (const outcome of outcomes) tried.delete(outcome.callId)
      return chargesOf(outcomes)
    }
    return chargesOf(outcomes.filter((outcome) => tried.delete(outcome.callId)))
  })

  return { write }
})
