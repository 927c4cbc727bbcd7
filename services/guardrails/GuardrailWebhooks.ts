import { Context, Data, type Effect, type Redacted } from "effect"
import type { JsonObject } from "#domain/json.ts"

/** Why a webhook gave no usable answer: the gateway's own words, fit for the log, without an address. */
export class WebhookFailed extends Data.TaggedError("WebhookFailed")<{ readonly why: string }> {}

export interface WebhookMessage {
  /** http or https. */
  readonly url: string
  /** Signs the message when there is one. */
  readonly secret: Redacted.Redacted<string> | undefined
  readonly body: JsonObject
}

/** Sends what a guardrail wants judged to a service of the operator's, and brings the answer back. */
export class GuardrailWebhooks extends Context.Service<
  GuardrailWebhooks,
  {
    /**
     * One POST of JSON with the headers of Standard Webhooks; no retry, no redirect, the answer at most as long as the
     * question and some. Never to addresses that the egress guard refuses. The deadline is the caller's: interruption
     * frees the connection.
     */
    readonly post: (message: WebhookMessage) => Effect.Effect<JsonObject, WebhookFailed>
  }
>()("sluice/guardrails/GuardrailWebhooks") {}
