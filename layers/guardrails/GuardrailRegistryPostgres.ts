import { Clock, Effect, Layer } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { InvalidRequest, notFound, PermissionDenied, type ValidationFailed } from "#domain/errors.ts"
import type { GuardrailMode } from "#domain/guardrails.ts"
import { isUuid, uuidv7 } from "#domain/ids.ts"
import type { JsonObject } from "#domain/json.ts"
import { publicTenant, type RowScope } from "#domain/principal.ts"
import type { RowOwner } from "#domain/row-owner.ts"
import { GuardrailEngine } from "#services/guardrails/GuardrailEngine.ts"
import {
  type Guardrail,
  type GuardrailChange,
  type GuardrailFields,
  type GuardrailLogEntry,
  GuardrailRegistry
} from "#services/guardrails/GuardrailRegistry.ts"
import { makeAudit } from "#services/provenance/audit.ts"
import type { Provenance } from "#services/provenance/Provenance.ts"
import { orUnavailable } from "#services/storage/outage.ts"
import { Tenants } from "#services/tenants/Tenants.ts"
import { UsageLedger } from "#services/usage/UsageLedger.ts"

interface GuardrailRow {
  readonly id: string
  readonly tenant: string
  readonly organization_id: string | null
  readonly guardrail_name: string
  readonly guardrail_type: string
  readonly mode: GuardrailMode
  readonly config: JsonObject
  readonly gateway_params: JsonObject
  readonly guardrail_info: JsonObject
  readonly enabled: boolean
  readonly created_at: Date
}

interface LogRow {
  readonly id: string
  readonly request_id: string
  readonly guardrail_id: string
  readonly guardrail_name: string
  readonly status: string
  readonly stage: string
  readonly duration_ms: number
  readonly confidence: number | null
  readonly original_content: string | null
  readonly modified_content: string | null
  readonly created_at: Date
}

interface CountRow {
  readonly guardrail_id: string
  readonly guardrail_name: string
  readonly status: string
  readonly stage: string
  readonly entries: string
  readonly duration_ms: number
}

const columns = `id, tenant, organization_id, guardrail_name, guardrail_type, mode, config, gateway_params,
  guardrail_info, enabled, created_at`
const logColumns = `id, request_id, guardrail_id, guardrail_name, status, stage, duration_ms, confidence,
  original_content, modified_content, created_at`

const nameTaken = new InvalidRequest({
  code: "already_exists",
  message: "A guardrail of this name exists.",
  param: "guardrail_name"
})

const notOurs = new PermissionDenied({
  code: "insufficient_permissions",
  message: "The guardrail belongs to another organization or to none."
})

const guardrailOf = (row: GuardrailRow): Guardrail => ({
  id: row.id,
  name: row.guardrail_name,
  type: row.guardrail_type,
  mode: row.mode,
  config: row.config,
  gatewayParams: row.gateway_params,
  guardrailInfo: row.guardrail_info,
  enabled: row.enabled,
  createdAt: row.created_at.getTime()
})

const entryOf = (row: LogRow): GuardrailLogEntry => ({
  id: row.id,
  requestId: row.request_id,
  guardrailId: row.guardrail_id,
  guardrailName: row.guardrail_name,
  status: row.status,
  stage: row.stage,
  durationMs: row.duration_ms,
  confidence: row.confidence,
  originalContent: row.original_content,
  modifiedContent: row.modified_content,
  createdAt: row.created_at.getTime()
})

/** What keeps a caller from writing a row; undefined: nothing does. */
const refusalOf = (row: GuardrailRow, scope: RowScope) => {
  if (scope.tenant === undefined) return undefined
  const ofInstance = row.tenant === publicTenant && row.organization_id === null
  if (row.tenant !== scope.tenant) return ofInstance ? notOurs : notFound("guardrail")
  return scope.organizationId === undefined || row.organization_id === scope.organizationId ? undefined : notOurs
}

/** Guardrails in `public`, their log and its sums in each tenant's schema. The engine hears of a change by a trigger. */
export const layer: Layer.Layer<
  GuardrailRegistry,
  never,
  SqlClient.SqlClient | Provenance | Tenants | UsageLedger | GuardrailEngine
> = Layer.effect(
  GuardrailRegistry,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const engine = yield* GuardrailEngine
    const tenants = yield* Tenants
    const usage = yield* UsageLedger
    const clock = yield* Clock.Clock
    const append = yield* makeAudit
    const all = sql.literal(columns)

    const audit = (
      action: string,
      row: Pick<GuardrailRow, "id" | "tenant" | "organization_id">,
      actor: string,
      payload: JsonObject
    ) =>
      append({
        tenant: row.tenant,
        organizationId: row.organization_id ?? "",
        action,
        actor,
        resourceType: "guardrail",
        resourceId: row.id,
        payload
      })

    const within = (scope: RowScope) =>
      scope.organizationId === ""
        ? sql`false`
        : sql.and([
            sql`true`,
            ...(scope.tenant === undefined ? [] : [sql`tenant = ${scope.tenant}`]),
            ...(scope.organizationId === undefined ? [] : [sql`organization_id = ${scope.organizationId}`])
          ])

    const create = Effect.fn("GuardrailRegistry.create")(function* (
      owner: RowOwner,
      fields: GuardrailFields,
      actor: string
    ) {
      const at = clock.currentTimeMillisUnsafe()
      const id = uuidv7(at)
      const valid = yield* engine.validate(fields)
      const name = valid.name === "" ? `${valid.type}-${id.slice(-12)}` : valid.name
      const organizationId = owner.organizationId === "" ? null : owner.organizationId
      yield* sql
        .withTransaction(
          Effect.gen(function* () {
            const rows = yield* sql`INSERT INTO public.guardrails (id, tenant, organization_id, guardrail_name,
                guardrail_type, mode, config, gateway_params, created_by, created_at, updated_at)
              VALUES (${id}, ${owner.tenant}, ${organizationId}, ${name}, ${valid.type}, ${valid.mode},
                ${JSON.stringify(valid.config)}, ${JSON.stringify(fields.gatewayParams)}, ${actor}, ${new Date(at)},
                ${new Date(at)}) ON CONFLICT DO NOTHING RETURNING id`
            if (rows.length === 0) return yield* nameTaken
            yield* audit("guardrail.created", { id, tenant: owner.tenant, organization_id: organizationId }, actor, {
              config: valid.config,
              guardrail_name: name,
              guardrail_type: valid.type,
              mode: valid.mode
            })
          })
        )
        .pipe(orUnavailable)
      return id
    })

    const change = <E>(
      id: string,
      scope: RowScope,
      run: (row: GuardrailRow) => Effect.Effect<void, E | SqlError.SqlError>
    ) =>
      sql
        .withTransaction(
          Effect.gen(function* () {
            if (!isUuid(id)) return yield* notFound("guardrail")
            const [row] = yield* sql<GuardrailRow>`SELECT ${all} FROM public.guardrails WHERE id = ${id} FOR UPDATE`
            if (row === undefined) return yield* notFound("guardrail")
            const refusal = refusalOf(row, scope)
            if (refusal !== undefined) return yield* refusal
            yield* run(row)
          })
        )
        .pipe(orUnavailable)

    const update = Effect.fn("GuardrailRegistry.update")(
      (id: string, fields: GuardrailChange, scope: RowScope, actor: string) =>
        change<ValidationFailed | InvalidRequest>(id, scope, (row) =>
          Effect.gen(function* () {
            const enabled = fields.enabled ?? row.enabled
            const draft = {
              name: fields.name ?? row.guardrail_name,
              type: fields.type ?? row.guardrail_type,
              mode: fields.mode ?? row.mode,
              config: fields.config ?? row.config
            }
            const judged = [fields.name, fields.type, fields.mode, fields.config].some((field) => field !== undefined)
            // A row that is only switched off need not be one that could be stored today.
            const valid = judged ? yield* engine.validate(draft) : draft
            yield* sql`UPDATE public.guardrails SET guardrail_name = ${valid.name}, guardrail_type = ${valid.type},
              mode = ${valid.mode}, config = ${JSON.stringify(valid.config)},
              gateway_params = ${JSON.stringify(fields.gatewayParams ?? row.gateway_params)}, enabled = ${enabled},
              updated_at = ${new Date(clock.currentTimeMillisUnsafe())} WHERE id = ${row.id}`.pipe(
              Effect.catchIf(
                (error) => error.reason._tag === "UniqueViolation",
                () => Effect.fail(nameTaken)
              )
            )
            yield* audit("guardrail.updated", row, actor, {
              config: valid.config,
              enabled,
              guardrail_name: valid.name,
              guardrail_type: valid.type,
              mode: valid.mode
            })
          })
        )
    )

    const remove = Effect.fn("GuardrailRegistry.remove")((id: string, scope: RowScope, actor: string) =>
      change<never>(id, scope, (row) =>
        Effect.andThen(
          sql`DELETE FROM public.guardrails WHERE id = ${row.id}`,
          audit("guardrail.deleted", row, actor, { guardrail_name: row.guardrail_name })
        )
      )
    )

    const find = Effect.fn("GuardrailRegistry.find")(function* (id: string, scope: RowScope) {
      if (!isUuid(id)) return undefined
      const [row] = yield* sql<GuardrailRow>`SELECT ${all} FROM public.guardrails
        WHERE id = ${id} AND ${within(scope)}`.pipe(orUnavailable)
      return row === undefined ? undefined : guardrailOf(row)
    })

    const list = Effect.fn("GuardrailRegistry.list")((scope: RowScope) =>
      sql<GuardrailRow>`SELECT ${all} FROM public.guardrails WHERE ${within(scope)}
        ORDER BY created_at DESC, id DESC LIMIT 10000`.pipe(
        Effect.map((rows) => rows.map(guardrailOf)),
        orUnavailable
      )
    )

    /** The schemas whose log a caller may read. Without tenants there is one, which is nobody's tenant. */
    const schemasOf = (scope: RowScope) => {
      const seen = scope.tenant === undefined ? [publicTenant, ...tenants.slugs] : [scope.tenant]
      const there = seen.filter((tenant) => tenant === publicTenant || tenants.slugs.includes(tenant))
      return Effect.forEach(there, tenants.schemaOf)
    }

    const logs = Effect.fn("GuardrailRegistry.logs")(function* (
      filter: { readonly guardrailId: string | undefined; readonly page: number; readonly pageSize: number },
      scope: RowScope
    ) {
      yield* usage.flush
      const schemas = yield* schemasOf(scope)
      if (schemas.length === 0 || scope.organizationId === "") return []
      const offset = (filter.page - 1) * filter.pageSize
      const values: Array<string | number> = [filter.pageSize, offset]
      const where: Array<string> = []
      if (filter.guardrailId !== undefined) where.push(`guardrail_id = $${values.push(filter.guardrailId)}`)
      if (scope.organizationId !== undefined) where.push(`organization_id = $${values.push(scope.organizationId)}`)
      const condition = where.length === 0 ? "" : `WHERE ${where.join(" AND ")}`
      // Each schema gives as many of its newest as the page could hold, through its index.
      const arms = schemas.map(
        (schema) => `(SELECT ${logColumns} FROM ${schema}.guardrail_logs ${condition}
          ORDER BY created_at DESC, id DESC LIMIT $1::int + $2::int)`
      )
      const rows = yield* sql
        .unsafe<LogRow>(
          `SELECT ${logColumns} FROM (${arms.join(" UNION ALL ")}) AS entries
          ORDER BY created_at DESC, id DESC LIMIT $1::int OFFSET $2::int`,
          values
        )
        .pipe(orUnavailable)
      return rows.map(entryOf)
    })

    const counts = Effect.fn("GuardrailRegistry.counts")(function* (scope: RowScope) {
      yield* usage.flush
      const schemas = yield* schemasOf(scope)
      if (schemas.length === 0 || scope.organizationId === "") return []
      const own = scope.organizationId === undefined ? "" : "WHERE organization_id = $1"
      const arms = schemas.map((schema) => `SELECT * FROM ${schema}.guardrail_usage ${own}`)
      const rows = yield* sql
        .unsafe<CountRow>(
          `SELECT guardrail_id, max(guardrail_name) AS guardrail_name, status, stage, sum(entries)::text AS entries,
            sum(duration_ms) AS duration_ms
          FROM (${arms.join(" UNION ALL ")}) AS sums GROUP BY guardrail_id, status, stage
          ORDER BY guardrail_id, status, stage`,
          scope.organizationId === undefined ? [] : [scope.organizationId]
        )
        .pipe(orUnavailable)
      return rows.map((row) => ({
        guardrailId: row.guardrail_id,
        guardrailName: row.guardrail_name,
        status: row.status,
        stage: row.stage,
        entries: Number(row.entries),
        durationMs: row.duration_ms
      }))
    })

    return GuardrailRegistry.of({ create, update, remove, find, list, logs, counts })
  })
)
