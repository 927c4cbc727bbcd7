/** Where a guardrail runs. */
export type GuardrailStage = "pre" | "post"

/** `log` lets the call go on and writes an entry; `block` rejects it. */
export type GuardrailMode = "log" | "block"

/** What one guardrail found in one call: becomes an entry of the guardrail log. */
export interface GuardrailEvent {
  readonly guardrailId: string
  readonly guardrailName: string
  readonly status: "passed" | "flagged" | "blocked" | "masked" | "error"
  readonly stage: GuardrailStage
  readonly durationMs: number
  /** In [0, 1]; null where the guardrail knows only yes and no. */
  readonly confidence: number | null
  readonly originalContent: string | null
  readonly modifiedContent: string | null
}
