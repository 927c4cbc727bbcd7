import { Context, Effect, Layer, Redacted } from "effect"
import { FetchHttpClient, HttpClient } from "effect/http"
import { OtlpExporter, OtlpMetrics, OtlpResource, OtlpSerialization, OtlpTracer } from "effect/observability"
import { evaluationRecord, spanOf } from "#layers/telemetry/gen-ai.ts"
import { EvaluationEvents } from "#services/evals/EvaluationEvents.ts"
import { CallTelemetry } from "#services/telemetry/CallTelemetry.ts"

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
  // A tracer of its own, installed nowhere: what is exported is what is said here, and no query or header by accident.
  const tracer =
    options.traces === undefined ? undefined : yield* OtlpTracer.make({ url: options.traces, headers, resource })
  if (options.metrics !== undefined) yield* OtlpMetrics.make({ url: options.metrics, headers, resource })
  const serialization = yield* OtlpSerialization.OtlpSerialization
  const described = yield* OtlpResource.fromConfig(resource)
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
  return Context.make(CallTelemetry, tracer && ((outcome) => spanOf(tracer, outcome))).pipe(
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
 * OpenTelemetry over OTLP/HTTP: a span a model call, the metrics of the ops port, an event a score. What is not sent in
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
