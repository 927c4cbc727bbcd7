/** The ops listener (decisions.md, section 1): liveness, readiness, metrics. Apart from the API, whose routes are the contract's. */
import { createServer } from "node:http"
import { NodeHttpServer } from "@effect/platform-node"
import { Effect, Layer } from "effect"
import { HttpRouter, HttpServerResponse } from "effect/http"
import { Readiness } from "#services/operations/Readiness.ts"
import { Serving } from "#services/operations/Serving.ts"

export interface OpsListenerOptions {
  readonly host: string
  readonly port: number
}

const Live = HttpRouter.add("GET", "/livez", Effect.succeed(HttpServerResponse.text("ok\n")))

const Ready = HttpRouter.add(
  "GET",
  "/readyz",
  Effect.gen(function* () {
    const readiness = yield* Readiness
    const state = (yield* Serving).state()
    // Answered without asking what it depends on: a load balancer has to hear of a drain at once.
    if (state !== "open") {
      return HttpServerResponse.jsonUnsafe({ status: state, dependencies: { listener: state } }, { status: 503 })
    }
    const dependencies = yield* readiness.check
    const ready = dependencies.every(({ state, required }) => !required || state === "ready")
    return HttpServerResponse.jsonUnsafe(
      {
        status: ready ? "ready" : "not_ready",
        dependencies: Object.fromEntries(dependencies.map(({ name, state }) => [name, state]))
      },
      { status: ready ? 200 : 503 }
    )
  })
)

const Metrics = HttpRouter.add(
  "GET",
  "/metrics",
  Effect.gen(function* () {
    const readiness = yield* Readiness
    return HttpServerResponse.text(yield* readiness.metrics, {
      contentType: "text/plain; version=0.0.4; charset=utf-8"
    })
  })
)

/** Serves `/livez`, `/readyz` and `/metrics`; whoever is to be told of a drain needs it until the drain is over. */
export const layer = (options: OpsListenerOptions) =>
  HttpRouter.serve(Layer.mergeAll(Live, Ready, Metrics), { disableLogger: true, disableListenLog: true }).pipe(
    Layer.provide(NodeHttpServer.layer(() => createServer(), { host: options.host, port: options.port }))
  )
