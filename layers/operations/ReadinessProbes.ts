import { monitorEventLoopDelay } from "node:perf_hooks"
import { Effect, Layer, Metric } from "effect"
import { PrometheusMetrics } from "effect/observability"
import * as SqlClient from "effect/sql/SqlClient"
import { gauges } from "#domain/telemetry.ts"
import { ModelCalls } from "#services/inference/ModelCalls.ts"
import { ProviderRouter } from "#services/inference/ProviderRouter.ts"
import { type Dependency, Readiness } from "#services/operations/Readiness.ts"
import { UsageLedger } from "#services/usage/UsageLedger.ts"

/** Asks each dependency when asked. */
export const layer = Layer.effect(
  Readiness,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const usage = yield* UsageLedger
    const calls = yield* ModelCalls
    const router = yield* ProviderRouter

    const delay = yield* Effect.acquireRelease(
      Effect.sync(() => {
        const histogram = monitorEventLoopDelay({ resolution: 20 })
        histogram.enable()
        return histogram
      }),
      (histogram) => Effect.sync(() => histogram.disable())
    )

    const state = <E>(probe: Effect.Effect<unknown, E>, otherwise: string) =>
      probe.pipe(
        Effect.as("ready"),
        Effect.timeout("2 seconds"),
        Effect.catchCause(() => Effect.succeed(otherwise))
      )

    return Readiness.of({
      check: Effect.gen(function* (): Effect.fn.Return<ReadonlyArray<Dependency>> {
        const deployments = router.health()
        return [
          { name: "database", state: yield* state(sql`SELECT 1`, "unavailable"), required: true },
          { name: "journal", state: usage.isFull() ? "full" : "ready", required: true },
          {
            name: "deployments",
            state:
              deployments.length === 0 || deployments.some((deployment) => deployment.state === "healthy")
                ? "ready"
                : "unhealthy",
            required: false
          }
        ]
      }),
      metrics: Effect.gen(function* () {
        const deployments = router.health()
        const healthy = deployments.filter((deployment) => deployment.state === "healthy").length
        yield* Metric.update(gauges.inFlight, calls.inFlight())
        yield* Metric.update(gauges.healthyDeployments, healthy)
        yield* Metric.update(gauges.unhealthyDeployments, deployments.length - healthy)
        yield* Metric.update(gauges.residentMemory, process.memoryUsage.rss())
        yield* Metric.update(gauges.eventLoopDelay, Number.isFinite(delay.mean) ? delay.percentile(99) / 1e9 : 0)
        delay.reset()
        return yield* PrometheusMetrics.format()
      })
    })
  })
)
