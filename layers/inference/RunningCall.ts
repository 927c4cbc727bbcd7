/** One admitted call from its reservation to its record. Plain state: the pipeline owns it, and no one else. */
import type { Context } from "effect"
import type { GatewayError } from "#domain/errors.ts"
import type { GuardrailEvent } from "#domain/guardrails.ts"
import type { Nanos } from "#domain/money.ts"
import { endUserOf } from "#domain/chat.ts"
import { actorOf, tenantOf } from "#domain/principal.ts"
import { countCall } from "#domain/telemetry.ts"
import { completionTokens, costOf, noUsage, type Price, promptTokens, totalTokens, type Usage } from "#domain/usage.ts"
import type { Reservation } from "#services/budgets/BudgetLedger.ts"
import type { AlertsShape } from "#services/callbacks/Alerts.ts"
import type { ModelCall } from "#services/inference/ModelCalls.ts"
import type { Served } from "#services/inference/ProviderRouter.ts"
import type { Span } from "#services/telemetry/Tracing.ts"
import type { Outcome, OutcomeStatus } from "#services/usage/UsageLedger.ts"

export interface RunningCall {
  readonly call: ModelCall
  readonly callId: string
  /** Unix milliseconds. */
  readonly startedAt: number
  readonly reservation: Reservation | undefined
  readonly guardrails: Array<GuardrailEvent>
  /** The price that holds until a deployment has answered with its own. */
  readonly price: Price | undefined
  /** Whether an upstream works on the call: then its prompt may cost. */
  sent: boolean
  /** What a whole answer consumed, from when it has come: that is charged, whatever happens to it here. */
  consumed: Usage | undefined
  served: Served | undefined
  firstByteAt: number | undefined
  /** Where the call is traced. */
  readonly span: Span | undefined
  /** Set by whoever ends the call first; whatever else happens then, nothing is settled or recorded twice. */
  ending: boolean
}

/** How a call ended, as far as its record is concerned. */
export interface Ending {
  readonly status: OutcomeStatus
  readonly usage: Usage | undefined
  readonly error: GatewayError | undefined
}

/** The status that a client which left before its answer is recorded with, as access logs commonly do. */
const clientClosedRequest = 499

const httpStatusOf = (ending: Ending): number =>
  ending.error !== undefined ? ending.error.status : ending.status === "cancelled" ? clientClosedRequest : 200

/**
 * Settles the reservation and describes what happened. A call without usage consumed nothing: its allowance is
 * released. Call once.
 */
export const finishCall = (running: RunningCall, ending: Ending, now: number): Outcome => {
  const { call, served } = running
  const price = served === undefined ? running.price : served.price
  const key = call.caller._tag === "ApiKey" ? call.caller.key : undefined
  const usage = ending.usage ?? noUsage
  const cost: Nanos = price === undefined || ending.usage === undefined ? 0n : costOf(price, usage)
  const charges =
    ending.usage === undefined
      ? running.reservation?.release()
      : running.reservation?.settle({ nanos: cost, tokens: totalTokens(usage) })
  return {
    callId: running.callId,
    requestId: call.requestId,
    recordedAt: now,
    startedAt: running.startedAt,
    tenant: tenantOf(call.caller),
    keyId: key?.id ?? null,
    userId: key?.userId ?? null,
    teamId: key?.teamId ?? null,
    organizationId: key?.organizationId ?? null,
    endUserId: endUserOf(call.body) ?? null,
    operation: call.operation,
    model: call.model,
    provider: served?.provider ?? null,
    upstreamModel: served?.upstreamModel ?? null,
    deploymentId: served?.deploymentId ?? null,
    status: ending.status,
    httpStatus: httpStatusOf(ending),
    errorCode: ending.error?.code ?? null,
    stream: call.stream,
    usage,
    cost,
    priced: price !== undefined,
    durationMs: now - running.startedAt,
    firstByteMs: running.firstByteAt === undefined ? null : running.firstByteAt - running.startedAt,
    charges: charges ?? [],
    guardrails: running.guardrails,
    ...(call.caller._tag === "Administrator" ? { actor: actorOf(call.caller) } : {}),
    ...(call.action === undefined ? {} : { action: call.action })
  }
}

/** Tells metrics and alerts of what `finishCall` described. */
export const tellOutcome = (outcome: Outcome, alerts: AlertsShape, metrics: Context.Context<never>): void => {
  countCall(
    {
      operation: outcome.operation,
      status: outcome.status,
      durationMs: outcome.durationMs,
      firstByteMs: outcome.firstByteMs,
      promptTokens: promptTokens(outcome.usage),
      completionTokens: completionTokens(outcome.usage),
      spend: outcome.cost
    },
    metrics
  )
  if (!outcome.priced && outcome.status === "success") alerts.servedUnpriced(outcome.model)
}
