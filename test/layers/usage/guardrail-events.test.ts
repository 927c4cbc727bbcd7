import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import type { GuardrailEvent } from "#domain/guardrails.ts"
import { uuidv7 } from "#domain/ids.ts"
import { makeSpendRows } from "#layers/usage/SpendRows.ts"
import type { Outcome } from "#services/usage/UsageLedger.ts"
import { testDatabase } from "#test/support/Postgres.ts"
import { outcomeOf, underUsage } from "#test/support/usage.ts"

const found = (guardrailName: string, status: GuardrailEvent["status"]): GuardrailEvent => ({
  guardrailId: `id-${guardrailName}`,
  guardrailName,
  status,
  stage: "pre",
  durationMs: 0.1,
  confidence: null,
  originalContent: "what nobody may read",
  modifiedContent: null
})

const call = (status: Outcome["status"], ...guardrails: ReadonlyArray<GuardrailEvent>) =>
  outcomeOf(uuidv7(1), 0n, { status, guardrails })

interface Event {
  readonly type: string
  readonly data: { readonly guardrail_name: string; readonly call_id: string; readonly organization_id: string }
}

describe("guardrail.blocked", () => {
  it.effect("comes once for each guardrail that blocked a call, with its record and never with the content", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const rows = yield* makeSpendRows
      yield* sql`INSERT INTO public.callbacks (id, whole_instance, url, events, sealed, encryption_key_id, created_by,
          created_at)
        VALUES (${uuidv7(0)}, true, 'https://example.com', '{}', '\\x00', 'k', 'user:ann', now())`
      const blocked = call("blocked", found("words", "blocked"), found("secrets", "blocked"), found("pii", "flagged"))
      const failed = call("blocked", found("webhook", "error"), found("length", "passed"))
      const outcomes = [
        blocked,
        failed,
        // One that failed open blocked nothing where another did.
        call("blocked", found("judge", "error"), found("regex", "blocked")),
        call("success", found("masking", "masked"), found("open", "error"))
      ]
      yield* rows.write(outcomes, new Set())
      yield* rows.write(outcomes, new Set())
      const deliveries = yield* sql<{ body: string }>`SELECT body FROM public.callback_deliveries`
      const events = deliveries.map(({ body }) => JSON.parse(body) as Event)
      assert.deepStrictEqual(events.map(({ data }) => data.guardrail_name).sort(), [
        "regex",
        "secrets",
        "webhook",
        "words"
      ])
      for (const { data, type } of events) {
        assert.strictEqual(type, "guardrail.blocked")
        assert.strictEqual(data.organization_id, "org-1")
      }
      assert.strictEqual(events.filter(({ data }) => data.call_id === blocked.callId).length, 2)
      for (const { body } of deliveries) assert.notInclude(body, "nobody may read")
    }).pipe(Effect.provide(underUsage()), Effect.provide(testDatabase()))
  )
})
