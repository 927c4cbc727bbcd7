/** What the outcome of a try says about the health of its deployment. `probe` is what the breaker's `begin` said of it. */
import { type GatewayError, InvalidRequest } from "#domain/errors.ts"
import type { Deployment } from "#layers/inference/Deployment.ts"
import type { RouterContext } from "#layers/inference/RouterContext.ts"
import type { HealthChange } from "#services/inference/ProviderRouter.ts"
import type { UpstreamProblem } from "#services/inference/Wire.ts"

const changed = (
  context: RouterContext,
  { id, modelName }: Deployment,
  state: HealthChange["state"],
  reason: string | undefined
): void => context.healthChanged({ deploymentId: id, modelName, state, reason })

/** A failure that quotes none of the deployment's secrets. */
const discreet = ({ secrets }: Deployment, error: GatewayError): GatewayError => {
  if (!(error instanceof InvalidRequest) || !secrets.some((secret) => error.message.includes(secret))) return error
  const message = secrets.reduce((text, secret) => text.replaceAll(secret, "[redacted]"), error.message)
  return new InvalidRequest({ code: error.code, message, param: error.param })
}

/** It has answered. */
export const noteSuccess = (context: RouterContext, deployment: Deployment, probe: boolean): void => {
  const { state } = deployment
  state.lastCheckedAt = context.now()
  state.lastProblem = null
  noteResponsive(context, deployment, probe)
}

/** It works, whatever came of the try. */
export const noteResponsive = (context: RouterContext, deployment: Deployment, probe: boolean): void => {
  if (deployment.state.breaker.succeeded(probe)) changed(context, deployment, "recovered", undefined)
}

/** The try ended with a problem: returns what may be told of it. */
export const noteProblem = (
  context: RouterContext,
  deployment: Deployment,
  problem: UpstreamProblem,
  probe: boolean
): GatewayError => {
  const { state } = deployment
  state.lastCheckedAt = context.now()
  const error = discreet(deployment, problem.error)
  if (problem.unhealthy) {
    state.lastProblem = error.message
    if (state.breaker.failed(probe)) changed(context, deployment, "unhealthy", error.message)
  } else if (problem.remedy === "none") noteResponsive(context, deployment, probe)
  else state.breaker.neutral(probe)
  if (problem.retryAfterMs !== undefined) state.restsUntil = context.now() + problem.retryAfterMs
  return error
}
