/** Runs of pipelines (decisions.md, section 10.2): statuses, and the history that a run is made of. */
import type { Json, JsonObject } from "#domain/json.ts"

export const runStatuses = [
  "accepted",
  "running",
  "awaiting_review",
  "completed",
  "failed",
  "cancelled",
  "terminated"
] as const
export type RunStatus = (typeof runStatuses)[number]

const final: ReadonlySet<RunStatus> = new Set(["completed", "failed", "cancelled", "terminated"])

export const isFinal = (status: RunStatus): boolean => final.has(status)

/** The signal that decides a review (management-api.md, "States and transitions"). */
export const reviewSignal = "human_review_decision"

/** Why a step or a run failed. */
export interface RunError {
  readonly code: string
  readonly message: string
  /** The step, where one is at fault. */
  readonly step?: string
}

/** A human's decision. */
export interface ReviewDecision {
  readonly approved: boolean
  readonly reason: string
  readonly reviewer: string
}

/**
 * What happened in a run. Appended and never changed: whoever takes a run over reads them and knows all. `item` is the
 * index within a `map`.
 */
export type RunEvent =
  | { readonly type: "run_started" }
  | { readonly type: "step_started"; readonly step: string; readonly item?: number; readonly attempt: number }
  | {
      readonly type: "step_completed"
      readonly step: string
      readonly item?: number
      /** The try that made it; none where nothing was tried. */
      readonly attempt?: number
      readonly output: Json
    }
  | {
      readonly type: "step_failed"
      readonly step: string
      readonly item?: number
      readonly attempt: number
      readonly error: RunError
      /** Unix milliseconds of the next try; null: there is none. */
      readonly retryAt: number | null
    }
  | { readonly type: "step_skipped"; readonly step: string; readonly reason: "condition" | "branch" | "needs" }
  | { readonly type: "map_started"; readonly step: string; readonly items: number }
  | {
      readonly type: "review_requested"
      readonly step: string
      readonly title: string
      readonly reviewerRole: string
      /** What the reviewer is shown besides. */
      readonly details: Json
      /** Unix milliseconds. */
      readonly deadline: number
    }
  | ({ readonly type: "review_decided"; readonly step: string } & ReviewDecision)
  | { readonly type: "cancel_requested"; readonly actor: string }
  | { readonly type: "run_completed"; readonly outputs: JsonObject }
  | { readonly type: "run_failed"; readonly error: RunError }
  | { readonly type: "run_cancelled" }
  | { readonly type: "run_terminated"; readonly actor: string; readonly reason: string }

export type RunEventType = RunEvent["type"]

export interface HistoryEvent {
  /** Gapless from 1. */
  readonly sequence: number
  /** Unix milliseconds. */
  readonly at: number
  readonly event: RunEvent
}
