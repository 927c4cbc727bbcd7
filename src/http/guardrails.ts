import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { ManagementCaller, RequestId } from "#api/access.ts"
import { Api } from "#api/Api.ts"
import { defaultPageSize } from "#api/fields.ts"
import { invalidValue } from "#domain/errors.ts"
import type { GuardrailEvent, GuardrailStatus } from "#domain/guardrails.ts"
import { instantText } from "#domain/instants.ts"
import { actorOf, rowScopeOf } from "#domain/principal.ts"
import { isGiven, ownerFor } from "#http/row-owner.ts"
import { GuardrailEngine, type GuardrailPolicy, type GuardrailVerdict } from "#services/guardrails/GuardrailEngine.ts"
import {
  type Guardrail,
  type GuardrailChange,
  type GuardrailCount,
  type GuardrailLogEntry,
  GuardrailRegistry
} from "#services/guardrails/GuardrailRegistry.ts"
import { Tenants } from "#services/tenants/Tenants.ts"

const shown = (guardrail: Guardrail) => ({
  id: guardrail.id,
  guardrail_id: guardrail.id,
  guardrail_name: guardrail.name,
  name: guardrail.name,
  guardrail_type: guardrail.type,
  mode: guardrail.mode,
  config: guardrail.config,
  enabled: guardrail.enabled,
  gateway_params: guardrail.gatewayParams,
  guardrail_info: guardrail.guardrailInfo,
  created_at: instantText(guardrail.createdAt)
})

const shownEntry = (entry: GuardrailLogEntry) => ({
  id: entry.id,
  request_id: entry.requestId,
  guardrail_id: entry.guardrailId,
  guardrail_name: entry.guardrailName,
  status: entry.status,
  duration_ms: entry.durationMs,
  confidence: entry.confidence,
  stage: entry.stage,
  original_content: entry.originalContent,
  modified_content: entry.modifiedContent,
  created_at: instantText(entry.createdAt)
})

const shownEvent = (event: GuardrailEvent) => ({
  guardrail_id: event.guardrailId,
  guardrail_name: event.guardrailName,
  status: event.status,
  stage: event.stage,
  duration_ms: event.durationMs,
  confidence: event.confidence,
  original_content: event.originalContent,
  modified_content: event.modifiedContent
})

const summed = (counts: ReadonlyArray<GuardrailCount>, by: (count: GuardrailCount) => string) => {
  const sums = new Map<string, number>()
  for (const count of counts) sums.set(by(count), (sums.get(by(count)) ?? 0) + count.entries)
  return Object.fromEntries(sums)
}

const totalsOf = (counts: ReadonlyArray<GuardrailCount>) => {
  const total = counts.reduce((sum, { entries }) => sum + entries, 0)
  const duration = counts.reduce((sum, { durationMs }) => sum + durationMs, 0)
  return {
    total,
    by_status: summed(counts, ({ status }) => status),
    average_duration_ms: total === 0 ? 0 : duration / total
  }
}

const statisticsOf = (counts: ReadonlyArray<GuardrailCount>) => ({
  ...totalsOf(counts),
  by_stage: summed(counts, ({ stage }) => stage),
  guardrails: [...Map.groupBy(counts, ({ guardrailId }) => guardrailId)].map(([id, own]) => ({
    guardrail_id: id,
    guardrail_name: own.at(-1)?.guardrailName ?? "",
    ...totalsOf(own)
  }))
})

const found: ReadonlySet<GuardrailStatus> = new Set(["flagged", "masked", "blocked", "error"])

const checkOf = (verdicts: ReadonlyArray<GuardrailVerdict>, input: string) => {
  const results = verdicts.flatMap(({ events }) => events)
  const has = (status: GuardrailStatus) => results.some((event) => event.status === status)
  const action = verdicts.some(({ blocked }) => blocked !== undefined)
    ? ("block" as const)
    : has("masked")
      ? ("mask" as const)
      : has("flagged") || has("error")
        ? ("log" as const)
        : ("allow" as const)
  return {
    passed: !results.some(({ status }) => found.has(status)),
    details: { action, output: verdicts.at(-1)?.texts[0] ?? input, results: results.map(shownEvent) }
  }
}

/** Both stages, the second over what the first left of the text. */
const dryRun = Effect.fnUntraced(function* (policy: GuardrailPolicy | undefined, input: string) {
  const verdicts: Array<GuardrailVerdict> = []
  for (const stage of ["pre", "post"] as const) {
    if (policy?.[stage] !== true) continue
    verdicts.push(yield* policy.check(stage, [verdicts.at(-1)?.texts[0] ?? input]))
  }
  return checkOf(verdicts, input)
})

export const GuardrailHandlers = HttpApiBuilder.group(
  Api,
  "guardrail",
  Effect.fn(function* (handlers) {
    const registry = yield* GuardrailRegistry
    const engine = yield* GuardrailEngine
    const tenants = yield* Tenants
    return handlers.handleAll({
      check: Effect.fnUntraced(function* ({ payload }) {
        const caller = yield* ManagementCaller
        const onBehalf = { principal: caller, requestId: yield* RequestId }
        if (!isGiven(payload.guardrail_id)) {
          const { organizationId, tenant } = yield* ownerFor(tenants, caller)
          const policy = engine.policy(tenant, organizationId === "" ? null : organizationId, onBehalf)
          return yield* dryRun(policy, payload.input)
        }
        const guardrail = yield* registry.find(payload.guardrail_id, rowScopeOf(caller))
        if (guardrail === undefined) return yield* invalidValue("guardrail_id", "There is no such guardrail.")
        return yield* dryRun(engine.only(guardrail, onBehalf), payload.input)
      }),
      delete: Effect.fnUntraced(function* ({ payload }) {
        const caller = yield* ManagementCaller
        yield* registry.remove(payload.guardrail_id, rowScopeOf(caller), actorOf(caller))
        return { deleted: true }
      }),
      list: Effect.fnUntraced(function* () {
        const rows = yield* registry.list(rowScopeOf(yield* ManagementCaller))
        return { data: rows.map(shown) }
      }),
      logs: Effect.fnUntraced(function* ({ query }) {
        const filter = {
          guardrailId: isGiven(query.guardrail_id) ? query.guardrail_id : undefined,
          page: query.page ?? 1,
          pageSize: query.page_size ?? defaultPageSize
        }
        const entries = yield* registry.logs(filter, rowScopeOf(yield* ManagementCaller))
        return { data: entries.map(shownEntry) }
      }),
      stats: Effect.fnUntraced(function* () {
        return statisticsOf(yield* registry.counts(rowScopeOf(yield* ManagementCaller)))
      }),
      new: Effect.fnUntraced(function* ({ payload }) {
        const caller = yield* ManagementCaller
        const owner = yield* ownerFor(tenants, caller)
        const fields = {
          name: payload.guardrail_name ?? "",
          type: payload.guardrail_type ?? "",
          mode: payload.mode,
          config: payload.config ?? payload.gateway_params ?? {},
          gatewayParams: payload.gateway_params ?? {}
        }
        return { guardrail_id: yield* registry.create(owner, fields, actorOf(caller)) }
      }),
      update: Effect.fnUntraced(function* ({ payload }) {
        const caller = yield* ManagementCaller
        const change: GuardrailChange = {
          ...(isGiven(payload.guardrail_name) ? { name: payload.guardrail_name } : {}),
          ...(isGiven(payload.guardrail_type) ? { type: payload.guardrail_type } : {}),
          ...(isGiven(payload.mode) ? { mode: payload.mode } : {}),
          ...(payload.config === undefined || payload.config === null ? {} : { config: payload.config }),
          ...(payload.gateway_params === undefined || payload.gateway_params === null
            ? {}
            : { gatewayParams: payload.gateway_params }),
          ...(typeof payload.enabled === "boolean" ? { enabled: payload.enabled } : {})
        }
        yield* registry.update(payload.guardrail_id, change, rowScopeOf(caller), actorOf(caller))
        return { updated: true }
      })
    })
  })
)
