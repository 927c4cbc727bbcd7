/** What callbacks can be told of (decisions.md, section 9). */
export const callbackEvents = [
  "key.created",
  "key.updated",
  "key.deleted",
  "key.blocked",
  "key.unblocked",
  "key.regenerated",
  "budget.soft_exceeded",
  "budget.exceeded",
  "guardrail.blocked",
  "model.unhealthy",
  "model.recovered",
  "model.unpriced",
  "eval_job.completed",
  "pipeline.run.started",
  "pipeline.run.completed",
  "pipeline.run.failed",
  "pipeline.run.awaiting_review"
] as const

export type CallbackEventType = (typeof callbackEvents)[number]

const known: ReadonlySet<string> = new Set(callbackEvents)

export const isCallbackEvent = (name: string): name is CallbackEventType => known.has(name)

/** Audit actions that callbacks hear of under another name. */
const renamed: Readonly<Record<string, CallbackEventType>> = { "pipeline.run.start": "pipeline.run.started" }

/** The event that an audited action is; undefined where callbacks are not told of it. */
export const eventOfAction = (action: string): CallbackEventType | undefined =>
  isCallbackEvent(action) ? action : renamed[action]
