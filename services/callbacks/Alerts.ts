import { Context } from "effect"
import type { Limit } from "#domain/limits.ts"

/**
 * What model calls notice that callbacks hear of, although no transaction belongs to it. Synchronous and cheap: what was
 * told before costs a look, the rest is written in the background. By default nobody listens.
 */
export interface AlertsShape {
  /** A budget has refused a call for good (`budget.exceeded`). */
  readonly budgetRefused: (limit: Limit) => void
  /** A model was served, and nobody knows its price (`model.unpriced`). */
  readonly servedUnpriced: (model: string) => void
}

export const Alerts = Context.Reference<AlertsShape>("sluice/callbacks/Alerts", {
  defaultValue: () => ({ budgetRefused: () => undefined, servedUnpriced: () => undefined })
})
