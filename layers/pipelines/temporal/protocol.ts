/**
 * What gateway, workflow and activities say to each other through Temporal. Small on purpose: inputs, outputs and texts stay
 * in PostgreSQL, and what stands in Temporal's history is names, states and times.
 */
import type { StepState } from "#domain/pipelines/next-steps.ts"
import type { RunKey } from "#services/pipelines/WorkflowEngine.ts"

/** A workflow's only argument. */
export type RunArgument = RunKey

/** A step of the run, its needs, and where it stands. */
export interface StepOutline {
  readonly id: string
  readonly needs: ReadonlyArray<string>
  readonly state: StepState
}

/** `over`: the run has ended in PostgreSQL; nothing is to be done any more. */
export interface Over {
  readonly over: true
}

/** The signal `human_review_decision`. */
export interface DecisionSignal {
  /** The gateway has written the decision in the transaction around the signal; otherwise it is written now. */
  readonly recorded?: boolean
  readonly step_id?: string
  readonly approved?: boolean
  readonly reason?: string
  readonly reviewer?: string
}

/** How a workflow ends a run. */
export type Ending =
  | { readonly type: "completed" }
  | { readonly type: "cancelled" }
  | { readonly type: "failed"; readonly step: string | undefined }

export type EndedAs = "completed" | "failed" | "cancelled" | "over"

/** A function each; every one can be repeated. */
export interface Activities {
  /** Waits for the run's row, which is written by the transaction that started the workflow. Fails with `run_absent`. */
  readonly open: (key: RunKey) => Promise<ReadonlyArray<StepOutline> | Over>
  /** Brings a step as far as it goes now: to its end, to a try later, or to a review. */
  readonly work: (key: RunKey, step: string) => Promise<StepState | Over>
  /** A review's time is up. */
  readonly expire: (key: RunKey, step: string) => Promise<StepState | Over>
  /** Takes a decision in; says where the reviews stand. */
  readonly decide: (
    key: RunKey,
    decision: DecisionSignal
  ) => Promise<ReadonlyArray<{ readonly id: string; readonly state: StepState }> | Over>
  readonly finish: (key: RunKey, ending: Ending) => Promise<EndedAs>
}

/** How long a workflow waits for its row before it takes it that the transaction was rolled back. */
export const rowPatience = 30_000

/** An activity that says nothing for so long is taken to be dead, and is done again on another worker. */
export const heartbeatTimeout = 15_000
