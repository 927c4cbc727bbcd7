import type { JsonObject } from "#domain/json.ts"

/** What a check found in the texts of a call. */
export interface Finding {
  /** In [0, 1]; null where there is only yes and no. */
  readonly confidence: number | null
  /** What it fired on: for the log, never longer than `excerptLength`. */
  readonly original: string
  /** Where the guardrail masks: the texts as the call goes on with them, and the masked form of `original`. */
  readonly masked?: { readonly texts: ReadonlyArray<string>; readonly excerpt: string }
}

/** A compiled guardrail. Pure; may throw, which counts as the guardrail failing itself. A slow one is a generator. */
export interface CompiledCheck {
  readonly check: (texts: ReadonlyArray<string>) => Finding | undefined | Generator<void, Finding | undefined, void>
  /** Nanoseconds a character, roughly: decides at first, and what is measured later, where a text is checked. */
  readonly cost: number
}

/** A guardrail type that needs nothing but the text: one file in `types/`, one line in `types.ts`. */
export interface GuardrailType {
  readonly defaultStage: "pre" | "post"
  /** Judges only a whole answer, so that a stream is held back to its end. */
  readonly wholeAnswer: boolean
  /** Fields of `config` that no other type has, for types that are to be inferred. */
  readonly fields: ReadonlyArray<string>
  /** What a guardrail's name holds when it is of this type. */
  readonly nameHint: RegExp
  /** Throws `ConfigProblem` at a config that does not fit. */
  readonly compile: (config: JsonObject) => CompiledCheck
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
