import { Data, type Effect } from "effect"
import type { GatewayError } from "#domain/errors.ts"
import type { GuardrailStage } from "#domain/guardrails.ts"
import type { JsonObject } from "#domain/json.ts"
import type { GuardrailCaller, GuardrailModels } from "#services/guardrails/GuardrailModels.ts"
import type { GuardrailWebhooks, WebhookFailed } from "#services/guardrails/GuardrailWebhooks.ts"
import type { Secrets } from "#services/security/Secrets.ts"

/** What a check found in the texts of a call. */
export interface Finding {
  /** In [0, 1]; null where there is only yes and no. */
  readonly confidence: number | null
  /** What it fired on: for the log, never longer than `excerptLength`. */
  readonly original: string
  /** Where the guardrail masks: the texts as the call goes on with them, and the masked form of `original`. */
  readonly masked?: { readonly texts: ReadonlyArray<string>; readonly excerpt: string }
  /** Words for the caller, from a judge that the operator trusts to choose them. */
  readonly reason?: string
}

/** A compiled guardrail that needs nothing but the text. Pure; may throw, which counts as the guardrail failing itself. */
export interface LocalCheck {
  /** A slow one is a generator. */
  readonly check: (texts: ReadonlyArray<string>) => Finding | undefined | Generator<void, Finding | undefined, void>
  /** Nanoseconds a character, roughly: decides at first, and what is measured later, where a text is checked. */
  readonly cost: number
  /** Nanoseconds a character at the very worst, where somebody chose config and text to be slow. Default: `cost`. */
  readonly worstCost?: number
}

/** What a guardrail that asks elsewhere is given. */
export interface Inquiry {
  readonly stage: GuardrailStage
  /** Never empty. */
  readonly texts: ReadonlyArray<string>
  readonly guardrailName: string
  readonly caller: GuardrailCaller
}

/** Whom such a guardrail may ask. */
export interface Outside {
  readonly models: GuardrailModels["Service"]
  readonly webhooks: GuardrailWebhooks["Service"]
  readonly secrets: Secrets["Service"]
}

/** An answer that cannot be used. */
export class CheckFailed extends Data.TaggedError("CheckFailed")<{ readonly why: string }> {}

/** A compiled guardrail that asks a model or a service. A failure counts as the guardrail failing itself. */
export interface OutsideCheck {
  readonly ask: (
    outside: Outside,
    inquiry: Inquiry
  ) => Effect.Effect<Finding | undefined, CheckFailed | WebhookFailed | GatewayError>
  /** Milliseconds for an answer. */
  readonly timeout: number
  /** Characters of all texts together that are asked about at most; more is a failure. */
  readonly maxCharacters: number
  readonly wholeAnswer: boolean
}

/** A guardrail type: one file in `types/`, one line in `types.ts`. */
export interface GuardrailType {
  readonly defaultStage: "pre" | "post"
  /** Judges only a whole answer, so that a stream is held back to its end. An `OutsideCheck` says so itself. */
  readonly wholeAnswer: boolean
  /** Fields of `config` that no other type has, for types that are to be inferred. */
  readonly fields: ReadonlyArray<string>
  /** What a guardrail's name holds when it is of this type. */
  readonly nameHint: RegExp
  /** Fields of `config` that are sealed before they are stored. */
  readonly secretFields?: ReadonlyArray<string>
  /** Throws `ConfigProblem` at a config that does not fit. */
  readonly compile: (config: JsonObject) => LocalCheck | OutsideCheck
}

/** What is wrong with a config, and where (`patterns.0`). */
export class ConfigProblem extends Error {
  readonly param: string
  readonly missing: boolean
  constructor(param: string, message: string, missing = false) {
    super(message)
    this.param = param
    this.missing = missing
  }
}

const excerptLength = 2000

/** A part of a text around a position, for the log. */
export const excerpt = (text: string, at = 0): string => {
  if (text.length <= excerptLength) return text
  const start = Math.max(0, Math.min(at - excerptLength / 2, text.length - excerptLength))
  return text.slice(start, start + excerptLength)
}
