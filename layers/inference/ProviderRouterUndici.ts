import { Clock, Effect, Exit, Layer, Option } from "effect"
import { type GatewayError, modelNotFound } from "#domain/errors.ts"
import { type BreakerOptions, defaultBreaker } from "#layers/inference/CircuitBreaker.ts"
import { compile } from "#layers/inference/compile.ts"
import { healthOf, type RoutingTable } from "#layers/inference/Deployment.ts"
import { RoutedCall } from "#layers/inference/RoutedCall.ts"
import { defaultRouting, type RouterContext, type RoutingOptions } from "#layers/inference/RouterContext.ts"
import { BudgetLedger } from "#services/budgets/BudgetLedger.ts"
import {
  type Answer,
  type DeploymentHealth,
  type HealthChange,
  ProviderRouter,
  type UpstreamCall
} from "#services/inference/ProviderRouter.ts"
import { Transport } from "#services/inference/Transport.ts"
import { CredentialVault } from "#services/models/CredentialVault.ts"
import { ModelRegistry } from "#services/models/ModelRegistry.ts"

export interface ProviderRouterOptions {
  /** Whether `sandbox/…` models answer: never in production. */
  readonly sandbox: boolean
  /** Where keys of known providers may be found; the process's own by default. */
  readonly environment?: Readonly<Record<string, string | undefined>>
  readonly breaker?: BreakerOptions
  readonly routing?: Partial<RoutingOptions>
}

const unusableHealth = (table: RoutingTable): ReadonlyArray<DeploymentHealth> =>
  table.unusable.map((one) => ({
    deploymentId: one.id,
    modelName: one.modelName,
    provider: one.provider,
    upstreamModel: one.upstreamModel,
    state: "unusable",
    problem: one.problem,
    inFlight: 0,
    responseTimeMs: null,
    lastCheckedAt: null
  }))

/**
 * The router over a transport. Deployments are compiled when a model or credential changes. Where a `BudgetLedger` is
 * present, the `rpm` and `tpm` of deployments are held by it.
 */
export const providerRouterUndici = (
  options: ProviderRouterOptions
): Layer.Layer<ProviderRouter, never, Transport | ModelRegistry | CredentialVault> =>
  Layer.effect(
    ProviderRouter,
    Effect.gen(function* () {
      const clock = yield* Clock.Clock
      const transport = yield* Transport
      const registry = yield* ModelRegistry
      const vault = yield* CredentialVault
      const ledger = yield* Effect.serviceOption(BudgetLedger)
      const listeners = new Set<(change: HealthChange) => void>()
      const now = () => clock.currentTimeMillisUnsafe()
      const compileContext = {
        transport,
        sandbox: options.sandbox,
        environment: options.environment ?? process.env,
        reveal: vault.reveal,
        breaker: options.breaker ?? defaultBreaker,
        now
      }
      let table = compile(registry.snapshot(), compileContext)
      const recompile = () => {
        table = compile(registry.snapshot(), compileContext, table)
      }
      yield* registry.onChange(recompile)
      yield* vault.onChange(recompile)

      const context: RouterContext = {
        table: () => table,
        now,
        reserve: Option.match(ledger, { onNone: () => undefined, onSome: (some) => some.reserve }),
        fork: Effect.runForkWith(yield* Effect.context()),
        healthChanged: (change) => {
          for (const listener of listeners) listener(change)
        },
        options: { ...defaultRouting, ...options.routing }
      }
      const begin = (call: UpstreamCall, answered: (exit: Exit.Exit<Answer, GatewayError>) => void): (() => void) => {
        const group = table.groups.get(call.model)
        if (group === undefined) {
          answered(Exit.fail(modelNotFound(call.model)))
          return () => undefined
        }
        const routed = new RoutedCall(context, group, call, answered)
        routed.begin()
        return () => routed.interrupt()
      }
      return ProviderRouter.of({
        find: (model) => table.groups.get(model)?.routable,
        route: (call) => Effect.callback((resume) => Effect.sync(begin(call, resume))),
        begin,
        health: () => [...table.deployments.map(healthOf), ...unusableHealth(table)],
        onHealthChange: (listener) => Effect.sync(() => void listeners.add(listener))
      })
    })
  )
