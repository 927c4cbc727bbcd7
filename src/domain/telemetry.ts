/** What the gateway counts about itself. Labels are bounded: operations, statuses and codes, never names from outside. */
import { type Context, Metric } from "effect"
import type { ModelOperation } from "#domain/operations.ts"

const memoised = <A>(make: (operation: string, status: string) => A) => {
  const made = new Map<string, A>()
  return (operation: string, status: string): A => {
    const key = `${operation} ${status}`
    let value = made.get(key)
    if (value === undefined) made.set(key, (value = make(operation, status)))
    return value
  }
}

// Labels are given here and not with `Metric.withAttributes`, which sorts and joins them anew at every update.
const callCounter = memoised((operation, status) =>
  Metric.counter("sluice_model_calls_total", {
    description: "Finished model calls, by operation and status",
    incremental: true,
    attributes: { operation, status }
  })
)

const durations = Metric.histogram("sluice_model_call_duration_seconds", {
  description: "From admission to the last byte",
  boundaries: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300]
})

const firstBytes = Metric.histogram("sluice_model_call_first_byte_seconds", {
  description: "From admission to the first byte of the answer",
  boundaries: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60]
})

const tokens = (direction: string) =>
  Metric.counter("sluice_tokens_total", {
    description: "Tokens, by direction",
    incremental: true,
    attributes: { direction }
  })

const dollars = Metric.counter("sluice_spend_nanodollars_total", {
  description: "Recorded spend in nano-dollars",
  incremental: true,
  bigint: true
})

const refusalCounter = memoised((operation, code) =>
  Metric.counter("sluice_refused_calls_total", {
    description: "Model calls refused before they were admitted, by code",
    incremental: true,
    attributes: { operation, code }
  })
)

const promptTokensCounter = tokens("prompt")
const completionTokensCounter = tokens("completion")

/** What is counted of a finished call. */
export interface FinishedCall {
  readonly operation: ModelOperation
  readonly status: string
  readonly durationMs: number
  readonly firstByteMs: number | null
  readonly promptTokens: number
  readonly completionTokens: number
  readonly spend: bigint
}

/** Counts a finished call. Synchronous: it is on the hot path. */
export const countCall = (call: FinishedCall, context: Context.Context<never>): void => {
  callCounter(call.operation, call.status).updateUnsafe(1, context)
  durations.updateUnsafe(call.durationMs / 1000, context)
  if (call.firstByteMs !== null) firstBytes.updateUnsafe(call.firstByteMs / 1000, context)
  promptTokensCounter.updateUnsafe(call.promptTokens, context)
  completionTokensCounter.updateUnsafe(call.completionTokens, context)
  dollars.updateUnsafe(call.spend, context)
}

/** Counts a call that was refused before it was admitted. */
export const countRefusal = (operation: ModelOperation, code: string, context: Context.Context<never>): void =>
  refusalCounter(operation, code).updateUnsafe(1, context)

const droppedSpans = Metric.counter("sluice_spans_dropped_total", {
  description: "Finished spans that no collector took",
  incremental: true
})

/** Counts spans that are given up. */
export const countDroppedSpans = (spans: number, context: Context.Context<never>): void =>
  droppedSpans.updateUnsafe(spans, context)

/** Gauges that are read when asked for. */
export const gauges = {
  inFlight: Metric.gauge("sluice_calls_in_flight", { description: "Model calls running now, streams included" }),
  residentMemory: Metric.gauge("process_resident_memory_bytes", { description: "Resident memory of the process" }),
  eventLoopDelay: Metric.gauge("sluice_event_loop_delay_seconds", {
    description: "99th percentile delay of the event loop since the last reading"
  }),
  healthyDeployments: Metric.gauge("sluice_deployments_healthy", { description: "Deployments that take calls" }),
  unhealthyDeployments: Metric.gauge("sluice_deployments_unhealthy", { description: "Deployments taken out" })
}
