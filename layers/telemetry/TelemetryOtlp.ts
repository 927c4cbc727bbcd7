import { Clock, Context, Effect, Layer, Redacted } from "effect"
import { FetchHttpClient, HttpClient } from "effect/http"
import { OtlpExporter, OtlpMetrics, OtlpResource, OtlpSerialization } from "effect/observability"
import { type SamplerName, samplerOf } from "#domain/sampling.ts"
import { evaluationRecord } from "#layers/telemetry/evaluation-record.ts"
import { makeSpanExporter } from "#layers/telemetry/SpanExporter.ts"
import { makeTracing } from "#layers/telemetry/spans.ts"
import { EvaluationEvents } from "#services/evals/EvaluationEvents.ts"
import { Tracing } from "#services/telemetry/Tracing.ts"

/** Where telemetry goes; an undefined address switches its signal off. */
export interface TelemetryOptions {
  readonly traces: string | undefined
  readonly metrics: string | undefined
  readonly logs: string | undefined
  /** `name=value,…`, values percent-encoded (OTEL_EXPORTER_OTLP_HEADERS): they hold credentials. */
  readonly headers: Redacted.Redacted<string> | undefined
  readonly protocol: "http/protobuf" | "http/json"
  readonly serviceName: string
  readonly serviceVersion: string
  readonly sampler: SamplerName
  /** From 0 to 1, for the samplers that know one. */
  readonly samplerRatio: number
  /** Whether W3C Trace Context is read from requests and sent to upstreams. */
  readonly propagated: boolean
}

const decoded = (text: string): string => {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

const headersOf = (text: Redacted.Redacted<string> | undefined): Record<string, string> =>
  Object.fromEntries(
    (text === undefined ? "" : Redacted.value(text)).split(",").flatMap((pair) => {
      const at = pair.indexOf("=")
      return at < 1 ? [] : [[pair.slice(0, at).trim(), decoded(pair.slice(at + 1).trim())]]
    })
  )

const make = Effect.fnUntraced(function* (options: TelemetryOptions) {
  const resource = { serviceName: options.serviceName, serviceVersion: options.serviceVersion }
  const headers = headersOf(options.headers)
  const described = yield* OtlpResource.fromConfig(resource)
  const clock = yield* Clock.Clock
  // No tracer of Effect's: what is exported is what is said of a call, and no query or header by accident.
  const tracing =
    options.traces === undefined
      ? undefined
      : makeTracing({
          sampler: samplerOf(options.sampler, options.samplerRatio),
          propagated: options.propagated,
          now: () => clock.currentTimeMillisUnsafe(),
          finished: yield* makeSpanExporter({
            url: options.traces,
            headers,
            protocol: options.protocol,
            sender: { resource: described, scope: "sluice", version: options.serviceVersion }
          })
        })
  if (options.metrics !== undefined) yield* OtlpMetrics.make({ url: options.metrics, headers, resource })
  const serialization = yield* OtlpSerialization.OtlpSerialization
  const events =
    options.logs === undefined
      ? undefined
      : yield* OtlpExporter.make({
          label: "events",
          url: options.logs,
          headers,
          exportInterval: "1 second",
          maxBatchSize: 1000,
          body: (records) => [
            serialization.logs({
              resourceLogs: [
                {
                  resource: described,
                  scopeLogs: [{ scope: { name: "sluice", version: options.serviceVersion }, logRecords: records }]
                }
              ]
            }),
            Effect.void
          ],
          shutdownTimeout: "3 seconds"
        })
  return Context.make(Tracing, tracing).pipe(
    Context.add(EvaluationEvents, events && ((result) => events.push(evaluationRecord(result))))
  )
})

/** A collector that does not answer is given up, so that nothing piles up before it. */
const client = Layer.effect(
  HttpClient.HttpClient,
  Effect.map(
    HttpClient.HttpClient,
    HttpClient.transformResponse(
      Effect.timeoutOrElse({
        duration: "10 seconds",
        orElse: () => Effect.die(new Error("the collector does not answer"))
      })
    )
  )
).pipe(Layer.provide(FetchHttpClient.layer))

/**
 * OpenTelemetry over OTLP/HTTP: spans of calls and runs, the metrics of the ops port, an event a score. What is not sent in
 * time is dropped: telemetry never holds up a call. When the scope closes, what is pending is sent for up to 3 s.
 */
export const layer = (options: TelemetryOptions) =>
  Layer.effectContext(make(options)).pipe(
    Layer.provide([
      OtlpExporter.layerFlusher,
      options.protocol === "http/json" ? OtlpSerialization.layerJson : OtlpSerialization.layerProtobuf,
      client
    ])
  )
