import { Context, type Effect } from "effect"
import type { GuardrailBlocked, Unavailable, ValidationFailed } from "#domain/errors.ts"
import type { GuardrailDefinition, GuardrailEvent, GuardrailMode, GuardrailStage } from "#domain/guardrails.ts"
import type { JsonObject } from "#domain/json.ts"
import type { PiiEntity, PiiSpan } from "#domain/pii.ts"
import type { GuardrailCaller } from "#services/guardrails/GuardrailModels.ts"
import type { Span } from "#services/telemetry/Tracing.ts"

/** A guardrail as those whom it binds may know it. */
export interface BindingGuardrail {
  readonly name: string
  readonly type: string
  readonly mode: GuardrailMode
  readonly stage: GuardrailStage | "both"
}

/** The guardrails that bind a caller, compiled once per change. */
export interface GuardrailPolicy {
  /** Whether any guardrail runs at the stage; false costs a call nothing. */
  readonly pre: boolean
  readonly post: boolean
  /** Whether a post guardrail judges only whole answers: a stream under it is held back to its end, not in windows. */
  readonly wholeAnswer: boolean
  /** The names of the guardrails, in the order in which they run. */
  readonly names: ReadonlyArray<string>
  readonly guardrails: ReadonlyArray<BindingGuardrail>
  /**
   * Runs the stage over the texts of a call. `texts` holds the texts in their order, some masked where a guardrail
   * masks. After a block, guardrails that need nothing but the text still run and those that ask elsewhere do not. Never
   * fails: a guardrail that cannot run blocks, unless
   * it is told to fail open or only logs. Models that are asked are asked within `span`.
   */
  readonly check: (stage: GuardrailStage, texts: ReadonlyArray<string>, span?: Span) => Effect.Effect<GuardrailVerdict>
}

export interface GuardrailVerdict {
  readonly texts: ReadonlyArray<string>
  readonly events: ReadonlyArray<GuardrailEvent>
  /** Set when a guardrail in mode `block` fired; `param` names it. */
  readonly blocked: GuardrailBlocked | undefined
}

/** What a management operation asks to be stored; an empty type is inferred. */
export interface GuardrailDraft {
  readonly name: string
  readonly type: string
  readonly mode: string
  readonly config: JsonObject
}

/** Compiles and runs guardrails (management-api.md, "guardrail"; decisions.md, section 8). */
export class GuardrailEngine extends Context.Service<
  GuardrailEngine,
  {
    /**
     * The compiled policy of a scope; undefined where nothing binds it. Synchronous: a map look-up. Guardrails run on behalf
     * of the caller, who pays for the models that they ask; without one, on behalf of the master key.
     */
    readonly policy: (
      tenant: string,
      organizationId: string | null,
      caller?: GuardrailCaller
    ) => GuardrailPolicy | undefined
    /** Returns what to store, its type inferred where empty and its secrets sealed; the failure names the field (`config.patterns.0`). */
    readonly validate: (draft: GuardrailDraft) => Effect.Effect<Omit<GuardrailDefinition, "id">, ValidationFailed>
    /** A guardrail by itself, whether stored, enabled or neither: the dry run of `/guardrail/check`. */
    readonly only: (definition: GuardrailDefinition, caller?: GuardrailCaller) => GuardrailPolicy
    /** Personal data of the kinds asked for, off the event loop where the text is large. Fails with `overloaded`. */
    readonly findPii: (
      text: string,
      entities: ReadonlyArray<PiiEntity>,
      caller: GuardrailCaller
    ) => Effect.Effect<ReadonlyArray<PiiSpan>, Unavailable>
  }
>()("sluice/guardrails/GuardrailEngine") {}
