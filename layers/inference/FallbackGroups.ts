import { type GatewayError, InvalidRequest, Unavailable, UpstreamFailed } from "#domain/errors.ts"
import { deepestFallback } from "#layers/inference/compile.ts"
import type { Group, RoutingTable } from "#layers/inference/Deployment.ts"
import type { UpstreamCall } from "#services/inference/ProviderRouter.ts"

/** The groups that a call falls back to: the nearest first, and none twice. */
export class FallbackGroups {
  readonly #visited: Set<string>
  readonly #waiting: Array<readonly [name: string, depth: number]> = []
  #depth = 0

  /** `model` is the one that the call names. */
  constructor(model: string) {
    this.#visited = new Set([model])
  }

  /** The group to try when `group`, the last one given, has no deployment left; undefined: there is none. */
  after(group: Group, { groups }: RoutingTable): Group | undefined {
    if (this.#depth < deepestFallback) {
      for (const name of group.fallbacks) {
        if (this.#visited.has(name)) continue
        this.#visited.add(name)
        this.#waiting.push([name, this.#depth + 1])
      }
    }
    for (let next = this.#waiting.shift(); next !== undefined; next = this.#waiting.shift()) {
      const found = groups.get(next[0])
      if (found === undefined) continue
      this.#depth = next[1]
      return found
    }
    return undefined
  }
}

/** Why no deployment could even be asked. `group` is the one that the call names. */
export const nobodyAsked = (call: UpstreamCall, group: Group | undefined): GatewayError => {
  const name = call.model.slice(0, 200)
  const deployments = group?.tiers.flat() ?? []
  if (group?.sandboxOff === true) {
    const message = `The model '${name}' is the sandbox's, which does not answer in production (GATEWAY_ENVIRONMENT).`
    return new InvalidRequest({ code: "unsupported_model", message, param: "model" })
  }
  if (deployments.length === 0) {
    const message = `No deployment of the model '${name}' can be used; its settings are incomplete.`
    return new UpstreamFailed({ code: "upstream_error", message })
  }
  const able = deployments.filter((one) => one.wire.operations.has(call.operation))
  if (able.length === 0) {
    const message = `The model '${name}' does not support this operation.`
    return new InvalidRequest({ code: "unsupported_model", message, param: "model" })
  }
  const wait = Math.min(...able.map((one) => one.state.breaker.opensIn))
  return new Unavailable({
    code: "overloaded",
    message: `No deployment of the model '${name}' is healthy.`,
    retryAfter: Math.max(1, Math.ceil(wait / 1000))
  })
}
