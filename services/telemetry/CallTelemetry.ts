import { Context } from "effect"
import type { Outcome } from "#services/usage/UsageLedger.ts"

/**
 * Who is told of each finished model call, for tracing; undefined: nobody, and the call pays nothing. Called
 * synchronously on the hot path: must neither block nor throw.
 */
export const CallTelemetry = Context.Reference<((outcome: Outcome) => void) | undefined>(
  "sluice/telemetry/CallTelemetry",
  { defaultValue: () => undefined }
)
