import { Context, type Effect } from "effect"
import type { GuardrailBlocked } from "#domain/errors.ts"
import type { GuardrailEvent, GuardrailStage } from "#domain/guardrails.ts"

/** The guardrails that bind a caller, compiled once per change. */
export interface GuardrailPolicy {
  /** Whether any guardrail runs at the stage; false costs a call nothing. */
  readonly pre: boolean
  readonly post: boolean
  /**
   * Runs the stage over the texts of a call. `texts` holds the texts in their order, some masked where a guardrail
   * masks; events are complete even when the verdict is a block.
   */
  readonly check: (stage: GuardrailStage, texts: ReadonlyArray<string>) => Effect.Effect<GuardrailVerdict>
}

export interface GuardrailVerdict {
  readonly texts: ReadonlyArray<string>
  readonly events: ReadonlyArray<GuardrailEvent>
  /** Set when a guardrail in mode `block` fired; `param` names it. */
  readonly blocked: GuardrailBlocked | undefined
}

/** Compiles and runs guardrails (management-api.md, "guardrail"; decisions.md, section 8). */
export class GuardrailEngine extends Context.Service<
  GuardrailEngine,
  {
    /** The compiled policy of a scope; undefined where nothing binds it. Synchronous: a map look-up. */
    readonly policy: (tenant: string, organizationId: string | null) => GuardrailPolicy | undefined
  }
>()("sluice/guardrails/GuardrailEngine") {}
