import { Clock, Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { DeveloperCaller } from "#api/access.ts"
import { Api } from "#api/Api.ts"
import { defaultPageSize } from "#api/fields.ts"
import type { DayRange, DeveloperAuditEntry, DeveloperCall, DeveloperKey } from "#domain/developer.ts"
import { invalidValue, type ValidationFailed } from "#domain/errors.ts"
import { instantText, parseInstant } from "#domain/instants.ts"
import { dollarsNumber, nanosFromDollars } from "#domain/money.ts"
import { listed } from "#http/model-list.ts"
import { DeveloperAudit } from "#services/developer/DeveloperAudit.ts"
import { DeveloperKeys } from "#services/developer/DeveloperKeys.ts"
import { DeveloperUsage } from "#services/developer/DeveloperUsage.ts"
import { ModelRegistry } from "#services/models/ModelRegistry.ts"

/** The days that a summary covers where none are named, today included. */
const defaultDays = 30
const dayMillis = 86_400_000

const dayText = (millis: number): string => instantText(millis).slice(0, 10)

/** The days asked for; one that is left out is 30 days from the other, or today. */
const daysOf = Effect.fnUntraced(function* (query: {
  readonly start_date?: string
  readonly end_date?: string
}): Effect.fn.Return<DayRange, ValidationFailed> {
  const now = yield* Clock.currentTimeMillis
  const day = (text: string | undefined) => (text === undefined ? undefined : parseInstant(text))
  const start = day(query.start_date)
  const end = day(query.end_date) ?? Math.max(now, start ?? now)
  const range = { start: dayText(start ?? end - (defaultDays - 1) * dayMillis), end: dayText(end) }
  return range.start > range.end
    ? yield* invalidValue("start_date", "'start_date' must not be after 'end_date'.")
    : range
})

const shownKey = (key: DeveloperKey) => ({
  id: key.id,
  token: `sk-...${key.tokenHint}`,
  key_name: key.keyName,
  key_alias: key.keyAlias,
  max_budget: key.maxBudget === null ? null : dollarsNumber(key.maxBudget),
  models: key.models,
  rpm_limit: key.rpmLimit,
  tpm_limit: key.tpmLimit,
  expires: key.expires === null ? null : instantText(key.expires),
  blocked: key.blocked,
  created_at: instantText(key.createdAt),
  updated_at: instantText(key.updatedAt)
})

const shownCall = (call: DeveloperCall) => ({
  request_id: call.requestId,
  key_id: call.keyId,
  key_alias: call.keyAlias,
  operation: call.operation,
  model: call.model,
  provider: call.provider,
  status: call.status,
  error_code: call.errorCode,
  stream: call.stream,
  prompt_tokens: call.promptTokens,
  completion_tokens: call.completionTokens,
  total_tokens: call.promptTokens + call.completionTokens,
  spend: dollarsNumber(call.spend),
  start_time: instantText(call.startedAt),
  end_time: instantText(call.startedAt + call.durationMs)
})

const shownEntry = (entry: DeveloperAuditEntry) => ({
  id: entry.id,
  action: entry.action,
  actor: entry.actor,
  resource_type: entry.resourceType,
  resource_id: entry.resourceId,
  request_id: entry.requestId,
  payload: entry.payload,
  created_at: instantText(entry.createdAt)
})

export const DeveloperHandlers = HttpApiBuilder.group(
  Api,
  "developer",
  Effect.fn(function* (handlers) {
    const keys = yield* DeveloperKeys
    const usage = yield* DeveloperUsage
    const trail = yield* DeveloperAudit
    const registry = yield* ModelRegistry

    return handlers.handleAll({
      audit: Effect.fnUntraced(function* ({ query }) {
        const page = query.page ?? 1
        const pageSize = query.page_size ?? defaultPageSize
        const entries = yield* trail.list(yield* DeveloperCaller, page, pageSize)
        return { data: entries.map(shownEntry), page, page_size: pageSize }
      }),
      keys: Effect.fnUntraced(function* ({ query }) {
        const found = yield* keys.list(yield* DeveloperCaller, query.limit ?? defaultPageSize, query.offset ?? 0)
        return { data: found.map(shownKey) }
      }),
      create_key: Effect.fnUntraced(function* ({ headers, payload }) {
        const minted = yield* keys.mint(
          yield* DeveloperCaller,
          {
            keyName: payload.key_name ?? null,
            keyAlias: payload.key_alias ?? null,
            maxBudget:
              payload.max_budget === undefined || payload.max_budget === null
                ? null
                : (nanosFromDollars(payload.max_budget) ?? null),
            models: payload.models === null ? undefined : payload.models,
            rpmLimit: payload.rpm_limit ?? null,
            tpmLimit: payload.tpm_limit ?? null,
            expires:
              payload.expires === undefined || payload.expires === null ? null : (parseInstant(payload.expires) ?? null)
          },
          headers["idempotency-key"]
        )
        return { id: minted.id, key: minted.key, key_alias: minted.keyAlias }
      }),
      revoke_key: Effect.fnUntraced(function* ({ params }) {
        yield* keys.revoke(yield* DeveloperCaller, params.id)
      }),
      key: Effect.fnUntraced(function* ({ params }) {
        return shownKey(yield* keys.find(yield* DeveloperCaller, params.id))
      }),
      models: Effect.fnUntraced(function* () {
        const allowed = yield* keys.allowlist(yield* DeveloperCaller)
        const groups = Map.groupBy(registry.snapshot(), (row) => row.modelName)
        const data = [...groups].flatMap(([name, rows]) =>
          allowed === undefined || allowed.has(name) ? [listed(rows)] : []
        )
        return { object: "list", data }
      }),
      spend: Effect.fnUntraced(function* ({ query }) {
        const days = yield* daysOf(query)
        const total = yield* usage.spend(yield* DeveloperCaller, days)
        return {
          total_spend: dollarsNumber(total.spend),
          total_requests: total.requests,
          start_date: days.start,
          end_date: days.end
        }
      }),
      spend_logs: Effect.fnUntraced(function* ({ query }) {
        const page = query.page ?? 0
        const pageSize = query.page_size ?? defaultPageSize
        const calls = yield* usage.calls(yield* DeveloperCaller, page, pageSize)
        return { data: calls.map(shownCall), page, page_size: pageSize }
      }),
      usage: Effect.fnUntraced(function* ({ query }) {
        const rows = yield* usage.perKey(yield* DeveloperCaller, yield* daysOf(query))
        return {
          data: rows.map((row) => ({
            key_id: row.keyId,
            key_name: row.keyName,
            key_alias: row.keyAlias,
            request_count: row.requests,
            spend: dollarsNumber(row.spend),
            discarded: row.discarded
          }))
        }
      })
    })
  })
)
