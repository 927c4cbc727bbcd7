import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { ModelCaller, RequestId } from "#api/access.ts"
import { Api } from "#api/Api.ts"
import { ValidationFailed } from "#domain/errors.ts"
import { defaultPiiEntities, isPiiEntity } from "#domain/pii.ts"
import { publicTenant } from "#domain/principal.ts"
import { redact, redactionTokensIn, rehydrate } from "#domain/redaction.ts"
import { GuardrailEngine } from "#services/guardrails/GuardrailEngine.ts"
import { type RedactionOwner, RedactionStore } from "#services/guardrails/RedactionStore.ts"

/** Places of one text that are redacted, and tokens of one text that are looked up, at most. */
const maxSpans = 20_000

const tooMany = (what: string) =>
  new ValidationFailed({
    code: "value_too_long",
    message: `'text' holds more than ${maxSpans} ${what}.`,
    param: "text"
  })

export const GuardrailHelperHandlers = HttpApiBuilder.group(
  Api,
  "guardrail_helpers",
  Effect.fn(function* (handlers) {
    const engine = yield* GuardrailEngine
    const store = yield* RedactionStore

    const caller = Effect.gen(function* () {
      return { principal: yield* ModelCaller, requestId: yield* RequestId }
    })

    const owner = Effect.map(ModelCaller, (caller): RedactionOwner =>
      caller._tag === "ApiKey"
        ? { tenant: caller.key.tenant, keyId: caller.key.id }
        : { tenant: publicTenant, keyId: null }
    )

    const policy = Effect.map(caller, (caller) => {
      const { principal } = caller
      return principal._tag === "ApiKey"
        ? engine.policy(principal.key.tenant, principal.key.organizationId, caller)
        : engine.policy(publicTenant, null, caller)
    })

    return handlers.handleAll({
      available: () =>
        Effect.map(policy, (policy) => ({
          guardrails: (policy?.guardrails ?? []).map(({ mode, name, stage, type }) => ({
            guardrail_name: name,
            guardrail_type: type,
            mode,
            stage
          }))
        })),

      check: Effect.fnUntraced(function* ({ payload: { text } }) {
        const verdict = yield* (yield* policy)?.check("pre", [text]) ?? Effect.undefined
        const events = verdict?.events ?? []
        return {
          safe:
            verdict?.blocked === undefined && events.every(({ status }) => status !== "flagged" && status !== "masked"),
          results: events.map((event) => ({
            guardrail_name: event.guardrailName,
            status: event.status,
            stage: event.stage,
            confidence: event.confidence,
            duration_ms: event.durationMs,
            modified_content: event.modifiedContent
          }))
        }
      }),

      redact: Effect.fnUntraced(function* ({ payload: { entity_types, text } }) {
        const named = (entity_types ?? []).map((name) => name.toUpperCase()).filter(isPiiEntity)
        const spans = yield* engine.findPii(text, named.length === 0 ? defaultPiiEntities : named, yield* caller)
        if (spans.length > maxSpans) return yield* tooMany("places to redact")
        const redacted = redact(text, spans)
        const values = new Map(redacted.tokens.map(({ token, value }) => [token, value]))
        yield* store.keep(
          yield* owner,
          Array.from(values, ([token, value]) => ({ token, value }))
        )
        return {
          text: redacted.text,
          tokens: redacted.tokens.map(({ end, entityType, start, token }) => ({
            token,
            entity_type: entityType,
            start,
            end
          }))
        }
      }),

      rehydrate: Effect.fnUntraced(function* ({ payload: { text } }) {
        const tokens = redactionTokensIn(text)
        if (tokens.length > maxSpans) return yield* tooMany("tokens")
        const values = yield* store.resolve(yield* owner, tokens)
        return { text: rehydrate(text, (token) => values.get(token)) }
      })
    })
  })
)
