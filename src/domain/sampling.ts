/** Which traces are recorded: the samplers of OpenTelemetry, by their names in `OTEL_TRACES_SAMPLER`. */
import type { RemoteParent } from "#domain/trace-context.ts"

export const samplerNames = [
  "always_on",
  "always_off",
  "traceidratio",
  "parentbased_always_on",
  "parentbased_always_off",
  "parentbased_traceidratio"
] as const

export type SamplerName = (typeof samplerNames)[number]

/** Whether a trace is recorded. Asked once a trace, where it enters this program. */
export type Sampler = (traceId: string, parent: RemoteParent | undefined) => boolean

/** Of the trace id, the last 7 bytes: what level 2 of W3C Trace Context holds to be random. */
const randomDigits = 14
const randomRange = 16 ** randomDigits

const rootSampler = (name: SamplerName, ratio: number): Sampler => {
  if (name.endsWith("always_on")) return () => true
  if (name.endsWith("always_off")) return () => false
  // A higher ratio takes everything that a lower one does, so that programs with different ratios keep whole traces.
  const threshold = (1 - ratio) * randomRange
  return (traceId) => Number.parseInt(traceId.slice(-randomDigits), 16) >= threshold
}

/** `ratio` is between 0 and 1, and only read by the samplers that know one. */
export const samplerOf = (name: SamplerName, ratio: number): Sampler => {
  const root = rootSampler(name, ratio)
  return name.startsWith("parentbased_") ? (traceId, parent) => parent?.sampled ?? root(traceId, parent) : root
}
