/**
 * What is to be done next in a run. Both engines ask this; nothing else is imported here, because Temporal runs it inside
 * a workflow.
 */
import type { RunError } from "#domain/pipelines/runs.ts"

export type StepStatus = "pending" | "waiting" | "completed" | "skipped" | "failed"

/** Where a step stands. Times are Unix milliseconds. */
export interface StepState {
  readonly status: StepStatus
  /** Of a step that failed and is to be tried again; undefined: at once. */
  readonly retryAt: number | undefined
  /** Of a review: when it is over. */
  readonly deadline: number | undefined
  readonly error: RunError | undefined
}

export const isSettled = ({ status }: { readonly status: StepStatus }): boolean =>
  status === "completed" || status === "skipped" || status === "failed"

/** Steps of one run that are worked on at once; the items of a `map` count as one. */
export const maxRunning = 32

/** What a run can do now. */
export interface NextSteps {
  /** Steps whose needs are settled and that are not waiting for their time. */
  readonly ready: ReadonlyArray<string>
  /** The earliest moment at which a retry or a deadline is due, Unix milliseconds. */
  readonly dueAt: number | undefined
  /** Reviews that are over undecided. */
  readonly expired: ReadonlyArray<string>
  readonly failed: RunError | undefined
  /** Every step is completed or skipped. */
  readonly complete: boolean
}

/** `running`: the steps that are being worked on. */
export const nextSteps = (
  plan: { readonly steps: ReadonlyMap<string, { readonly needs: ReadonlySet<string> }> },
  progress: { readonly steps: ReadonlyMap<string, StepState> },
  running: (id: string) => boolean,
  now: number
): NextSteps => {
  const ready: Array<string> = []
  const expired: Array<string> = []
  let dueAt: number | undefined
  let failed: RunError | undefined
  let complete = true
  const due = (at: number) => (dueAt = dueAt === undefined ? at : Math.min(dueAt, at))
  for (const [id, { needs }] of plan.steps) {
    const step = progress.steps.get(id)!
    if (step.status === "completed" || step.status === "skipped") continue
    complete = false
    if (step.status === "failed") {
      failed ??= step.error
      continue
    }
    if (running(id)) continue
    if (step.status === "waiting") {
      const deadline = step.deadline ?? now
      if (deadline <= now) expired.push(id)
      else due(deadline)
      continue
    }
    if (![...needs].every((needed) => isSettled(progress.steps.get(needed)!))) continue
    if (step.retryAt !== undefined && step.retryAt > now) due(step.retryAt)
    else ready.push(id)
  }
  return { ready, dueAt, expired, failed, complete }
}
