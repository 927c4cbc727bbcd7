import { DateTime, Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { ModelCaller } from "#api/access.ts"
import { Api } from "#api/Api.ts"
import { dollarsNumber } from "#domain/money.ts"
import { UsageLedger } from "#services/usage/UsageLedger.ts"

/** The days that a summary covers, today included (model-api.md, "UsageSummary"). */
const summaryDays = 30

/** Whose usage a caller sees: a key its own, the master key the whole gateway's. */
const subject = Effect.map(ModelCaller, (caller) => (caller._tag === "ApiKey" ? caller.key.id : null))

export const UsageHandlers = HttpApiBuilder.group(
  Api,
  "usage",
  Effect.fn(function* (handlers) {
    const ledger = yield* UsageLedger
    return handlers.handleAll({
      report: () =>
        Effect.map(Effect.flatMap(subject, ledger.lifetime), (totals) => ({
          total_spend: dollarsNumber(totals.spend),
          total_requests: totals.requests,
          prompt_tokens: totals.promptTokens,
          completion_tokens: totals.completionTokens
        })),
      summary: Effect.fnUntraced(function* () {
        const now = yield* DateTime.now
        const end = DateTime.formatIsoDate(now)
        const start = DateTime.formatIsoDate(DateTime.subtract(now, { days: summaryDays - 1 }))
        const totals = yield* ledger.window(yield* subject, start, end)
        return {
          period_start: start,
          period_end: end,
          total_spend: dollarsNumber(totals.spend),
          total_requests: totals.requests
        }
      })
    })
  })
)
