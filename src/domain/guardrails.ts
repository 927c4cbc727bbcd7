import type { JsonObject } from "#domain/json.ts"

/** Where a guardrail runs. */
export type GuardrailStage = "pre" | "post"

/** `log` lets the call go on and writes an entry; `block` rejects it. */
export type GuardrailMode = "log" | "block"

export const guardrailModes: ReadonlyArray<GuardrailMode> = ["log", "block"]

/** A guardrail as it is stored. */
export interface GuardrailDefinition {
  readonly id: string
  readonly name: string
  readonly type: string
  readonly mode: GuardrailMode
  readonly config: JsonObject
}

/** `error`: the guardrail failed itself, which blocks in mode `block` unless its config says `fail_open: true`. */
export type GuardrailStatus = "passed" | "flagged" | "blocked" | "masked" | "error"

/** What one guardrail found in one call: becomes an entry of the guardrail log. */
export interface GuardrailEvent {
  readonly guardrailId: string
  readonly guardrailName: string
  readonly status: GuardrailStatus
  readonly stage: GuardrailStage
  readonly durationMs: number
  /** In [0, 1]; null where the guardrail knows only yes and no. */
  readonly confidence: number | null
  /** The text that it fired on, shortened; null where it passed or failed. */
  readonly originalContent: string | null
  readonly modifiedContent: string | null
}

const severity: { readonly [Status in GuardrailStatus]: number } = {
  passed: 0,
  flagged: 1,
  masked: 2,
  error: 3,
  blocked: 4
}

/**
 * One event for each guardrail and stage out of the many that a stream's windows make: the gravest status with its
 * contents, the durations added up.
 */
export const mergeGuardrailEvents = (events: ReadonlyArray<GuardrailEvent>): ReadonlyArray<GuardrailEvent> => {
  const merged = new Map<string, GuardrailEvent>()
  for (const event of events) {
    const key = `${event.stage} ${event.guardrailId}`
    const before = merged.get(key)
    if (before === undefined) {
      merged.set(key, event)
      continue
    }
    const graver = severity[event.status] > severity[before.status] ? event : before
    merged.set(key, { ...graver, durationMs: before.durationMs + event.durationMs })
  }
  return Array.from(merged.values())
}
