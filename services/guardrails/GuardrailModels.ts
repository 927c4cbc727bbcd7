import { Context, type Effect } from "effect"
import type { GatewayError } from "#domain/errors.ts"
import type { JsonObject } from "#domain/json.ts"
import type { AdministratorPrincipal, ApiKeyPrincipal, MasterKeyPrincipal } from "#domain/principal.ts"
import type { Span } from "#services/telemetry/Tracing.ts"

/** On whose behalf a guardrail runs. */
export interface GuardrailCaller {
  readonly principal: ApiKeyPrincipal | MasterKeyPrincipal | AdministratorPrincipal
  /** The id of the request that is being guarded. */
  readonly requestId: string
  /** The span in which it runs, where that is traced. */
  readonly span?: Span | undefined
}

/** What a guardrail asks a registered model. */
export interface GuardrailQuestion {
  readonly caller: GuardrailCaller
  readonly operation: "chat" | "moderation"
  readonly model: string
  readonly body: JsonObject
}

export interface GuardrailAnswer {
  /** The answer in the operation's OpenAI shape. */
  readonly body: JsonObject
  /** The generated texts. */
  readonly texts: ReadonlyArray<string>
}

/**
 * Model calls that guardrails make. They are accounted like any other: reserved on every budget of the caller's chain,
 * routed with retries and fallbacks, settled, and recorded under the caller's tenant, key and request id. They run under no
 * guardrails, so that none can call itself, and are not counted against limits of requests and tokens, so that a guardrail
 * does not halve what its caller may send; nor need the caller be allowed to call the model.
 */
export class GuardrailModels extends Context.Service<
  GuardrailModels,
  {
    /** Fails as a model call does (`model_not_found`, `budget_exceeded`, `upstream_error`, …). Interruption cancels it. */
    readonly ask: (question: GuardrailQuestion) => Effect.Effect<GuardrailAnswer, GatewayError>
  }
>()("sluice/guardrails/GuardrailModels") {}
