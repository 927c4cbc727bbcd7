import type { Limit } from "#domain/limits.ts"
import type { ModelOperation } from "#domain/operations.ts"
import { type BreakerOptions, CircuitBreaker } from "#layers/inference/CircuitBreaker.ts"
import type { DeploymentHealth, RoutableModel, Served } from "#services/inference/ProviderRouter.ts"
import type { TransportShape } from "#services/inference/Transport.ts"
import type { BoundWire } from "#services/inference/Wire.ts"

/** What lives on while settings change: load and health of one deployment, owned by the router alone. */
export class DeploymentState {
  /** Equal settings keep their state; changed ones start anew. */
  readonly fingerprint: string
  readonly breaker: CircuitBreaker
  inFlight = 0
  /** Smooth weighted round robin: the share this deployment is owed. */
  owed = 0
  /** Until then (Unix milliseconds) the upstream asked to be left alone. */
  restsUntil = 0
  responseTimeMs: number | null = null
  lastCheckedAt: number | null = null
  lastProblem: string | null = null

  constructor(fingerprint: string, options: BreakerOptions, now: () => number) {
    this.fingerprint = fingerprint
    this.breaker = new CircuitBreaker(options, now)
  }
}

/** One upstream of a model, compiled from its row: nothing here is worked out per call. */
export interface Deployment {
  readonly id: string
  readonly modelName: string
  readonly served: Served
  readonly wire: BoundWire
  readonly transport: TransportShape
  readonly weight: number
  /** Lower goes first. */
  readonly priority: number
  /** Milliseconds for one try, in total. */
  readonly timeout: number
  /** Milliseconds to the first event of a stream, and between events. */
  readonly streamTimeout: number
  readonly maxRetries: number
  /** The deployment's own `rpm` and `tpm`. */
  readonly limits: ReadonlyArray<Limit>
  readonly maxOutputTokens: number
  readonly maxInputTokens: number | undefined
  readonly fallbacks: ReadonlyArray<string>
  /** Values that must not be quoted to anybody. */
  readonly secrets: ReadonlyArray<string>
  readonly state: DeploymentState
}

/** A row that cannot be used, and why. */
export interface UnusableDeployment {
  readonly id: string
  readonly modelName: string
  readonly provider: string
  readonly upstreamModel: string
  readonly fallbacks: ReadonlyArray<string>
  readonly problem: string
}

/** The deployments behind one public name. */
export interface Group {
  readonly name: string
  /** By priority, the best first. */
  readonly tiers: ReadonlyArray<ReadonlyArray<Deployment>>
  readonly fallbacks: ReadonlyArray<string>
  /** None of it can be used, for it is the sandbox's and this is production. */
  readonly sandboxOff: boolean
  readonly routable: RoutableModel
}

/** Everything the router routes over, replaced as a whole. */
export interface RoutingTable {
  readonly groups: ReadonlyMap<string, Group>
  readonly deployments: ReadonlyArray<Deployment>
  readonly unusable: ReadonlyArray<UnusableDeployment>
}

/**
 * The deployment that takes the next call: of those that can, in the best priority, the one with the least load for its
 * weight, and in turns by weight where loads are equal. Those that asked for rest go last. Undefined: none is left.
 */
export const pick = (
  group: Group,
  operation: ModelOperation,
  tried: ReadonlySet<Deployment> | undefined,
  now: number
): Deployment | undefined => {
  let resting: Deployment | undefined
  for (const tier of group.tiers) {
    let best: Deployment | undefined
    let bestLoad = Number.POSITIVE_INFINITY
    let weights = 0
    for (const deployment of tier) {
      const { state } = deployment
      if (tried?.has(deployment) || !deployment.wire.operations.has(operation) || !state.breaker.admits) continue
      if (state.restsUntil > now) {
        resting ??= deployment
        continue
      }
      if (tier.length === 1) return deployment
      state.owed += deployment.weight
      weights += deployment.weight
      const load = state.inFlight / deployment.weight
      if (best === undefined || load < bestLoad || (load === bestLoad && state.owed > best.state.owed)) {
        best = deployment
        bestLoad = load
      }
    }
    if (best !== undefined) {
      best.state.owed -= weights
      return best
    }
  }
  return resting
}

/** A deployment for operators. */
export const healthOf = (deployment: Deployment): DeploymentHealth => ({
  deploymentId: deployment.id,
  modelName: deployment.modelName,
  provider: deployment.served.provider,
  upstreamModel: deployment.served.upstreamModel,
  state: deployment.state.breaker.state,
  problem: deployment.state.lastProblem,
  inFlight: deployment.state.inFlight,
  responseTimeMs: deployment.state.responseTimeMs,
  lastCheckedAt: deployment.state.lastCheckedAt
})
