import { Context, type Effect } from "effect"

/** One thing that the gateway depends on. */
export interface Dependency {
  readonly name: string
  /** `ready`, or what keeps it from being so. */
  readonly state: string
  /** Whether the gateway cannot serve without it. */
  readonly required: boolean
}

/** What the ops listener tells of this process. */
export class Readiness extends Context.Service<
  Readiness,
  {
    readonly check: Effect.Effect<ReadonlyArray<Dependency>>
    /** The metrics in the Prometheus text format. */
    readonly metrics: Effect.Effect<string>
  }
>()("sluice/operations/Readiness") {}
