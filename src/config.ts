/** Every setting, once (decisions.md, section 2). Read at start; an unusable value names its setting. */
import { Config, Context, Data, Duration, Effect, Layer, Option, Redacted, Schema } from "effect"
import { parseDuration } from "#domain/durations.ts"
import { samplerNames } from "#domain/sampling.ts"

/** The settings that may hold a value or nothing. */
const optional = <A>(config: Config.Config<A>) => Config.option(config).pipe(Config.map(Option.getOrUndefined))

/** `30s`, `24h`, or in words. */
const duration = (name: string) =>
  Config.schema(
    Schema.String.check(
      Schema.makeFilter((text: string) => parseDuration(text) !== undefined, { expected: "a duration, such as 24h" })
    ),
    name
  ).pipe(Config.map((text) => parseDuration(text) ?? Duration.zero))

const tenantSlug = /^[a-z][a-z0-9_-]{0,39}$/

const parseList = (text: string): ReadonlyArray<string> =>
  text
    .split(",")
    .map((part) => part.trim())
    .filter((part) => part !== "")

const parseTenants = (text: string): ReadonlyArray<string> => [...new Set(parseList(text))].sort()

const otelExporter = (name: string) => Config.Literals(["otlp", "none"], name).pipe(Config.withDefault("otlp" as const))

const readSettings = Config.all({
  host: Config.String("GATEWAY_HOST").pipe(Config.withDefault("127.0.0.1")),
  port: Config.Port("GATEWAY_PORT").pipe(Config.withDefault(4000)),
  opsPort: Config.Port("GATEWAY_OPS_PORT").pipe(Config.withDefault(4001)),
  processes: Config.Int("GATEWAY_PROCESSES").pipe(Config.withDefault(1)),
  dataDir: Config.String("GATEWAY_DATA_DIR").pipe(Config.withDefault("./data")),
  databaseUrl: optional(Config.Redacted("DATABASE_URL")),
  databaseConnections: Config.Int("GATEWAY_DATABASE_CONNECTIONS").pipe(Config.withDefault(10)),
  masterKey: optional(Config.Redacted("GATEWAY_MASTER_KEY")),
  encryptionKey: optional(Config.Redacted("GATEWAY_ENCRYPTION_KEY")),
  previousEncryptionKeys: optional(Config.Redacted("GATEWAY_PREVIOUS_ENCRYPTION_KEYS")),
  environment: Config.Literals(["development", "production"], "GATEWAY_ENVIRONMENT").pipe(
    Config.withDefault("development" as const)
  ),
  tenants: Config.String("GATEWAY_TENANTS").pipe(Config.withDefault(""), Config.map(parseTenants)),
  jwtSecret: optional(Config.Redacted("GATEWAY_JWT_SECRET")),
  jwksUrl: optional(Config.String("GATEWAY_JWKS_URL")),
  jwtIssuer: optional(Config.String("GATEWAY_JWT_ISSUER")),
  jwtAudience: optional(Config.String("GATEWAY_JWT_AUDIENCE")),
  corsOrigins: Config.String("GATEWAY_CORS_ORIGINS").pipe(Config.withDefault(""), Config.map(parseList)),
  logLevel: Config.Literals(["debug", "info", "warn", "error"], "GATEWAY_LOG_LEVEL").pipe(
    Config.withDefault("info" as const)
  ),
  journalLimitBytes: Config.Int("GATEWAY_JOURNAL_LIMIT_BYTES").pipe(Config.withDefault(256 * 1024 * 1024)),
  maxInFlight: Config.Int("GATEWAY_MAX_IN_FLIGHT").pipe(Config.withDefault(20_000)),
  allowPrivateCallbacks: Config.Boolean("GATEWAY_ALLOW_PRIVATE_CALLBACKS").pipe(Config.withDefault(false)),
  allowPrivateUpstreams: Config.Boolean("GATEWAY_ALLOW_PRIVATE_UPSTREAMS").pipe(Config.withDefault(true)),
  udfHost: Config.String("GATEWAY_UDF_HOST").pipe(Config.withDefault("127.0.0.1")),
  udfPort: Config.Port("GATEWAY_UDF_PORT").pipe(Config.withDefault(4443)),
  udfTlsCert: optional(Config.String("GATEWAY_UDF_TLS_CERT")),
  udfTlsKey: optional(Config.String("GATEWAY_UDF_TLS_KEY")),
  udfTlsClientCa: optional(Config.String("GATEWAY_UDF_TLS_CLIENT_CA")),
  developerMaxKeysPerUser: Config.Int("DEVELOPER_MAX_KEYS_PER_USER").pipe(Config.withDefault(10)),
  idempotencyTtl: duration("GATEWAY_IDEMPOTENCY_TTL").pipe(Config.withDefault(Duration.hours(24))),
  evalLeaseTimeout: duration("GATEWAY_EVAL_LEASE_TIMEOUT").pipe(Config.withDefault(Duration.minutes(5))),
  workflowEngine: Config.Literals(["embedded", "off"], "GATEWAY_WORKFLOW_ENGINE").pipe(
    Config.withDefault("embedded" as const)
  ),
  temporalAddress: optional(Config.String("TEMPORAL_ADDRESS")),
  temporalNamespace: Config.String("TEMPORAL_NAMESPACE").pipe(Config.withDefault("default")),
  temporalTaskQueue: Config.String("TEMPORAL_TASK_QUEUE").pipe(Config.withDefault("sluice")),
  temporalApiKey: optional(Config.Redacted("TEMPORAL_API_KEY")),
  // The names of Temporal's own tools and SDKs.
  temporalTls: optional(Config.Boolean("TEMPORAL_TLS")),
  temporalTlsCertPath: optional(Config.String("TEMPORAL_TLS_CLIENT_CERT_PATH")),
  temporalTlsKeyPath: optional(Config.String("TEMPORAL_TLS_CLIENT_KEY_PATH")),
  temporalTlsCaPath: optional(Config.String("TEMPORAL_TLS_SERVER_CA_CERT_PATH")),
  temporalTlsServerName: optional(Config.String("TEMPORAL_TLS_SERVER_NAME")),
  otelDisabled: Config.Boolean("OTEL_SDK_DISABLED").pipe(Config.withDefault(false)),
  otelEndpoint: optional(Config.URL("OTEL_EXPORTER_OTLP_ENDPOINT")),
  otelTracesEndpoint: optional(Config.URL("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")),
  otelMetricsEndpoint: optional(Config.URL("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")),
  otelLogsEndpoint: optional(Config.URL("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT")),
  otelTracesExporter: otelExporter("OTEL_TRACES_EXPORTER"),
  otelMetricsExporter: otelExporter("OTEL_METRICS_EXPORTER"),
  otelLogsExporter: otelExporter("OTEL_LOGS_EXPORTER"),
  otelHeaders: optional(Config.Redacted("OTEL_EXPORTER_OTLP_HEADERS")),
  otelProtocol: Config.Literals(["http/protobuf", "http/json"], "OTEL_EXPORTER_OTLP_PROTOCOL").pipe(
    Config.withDefault("http/protobuf" as const)
  ),
  otelServiceName: Config.String("OTEL_SERVICE_NAME").pipe(Config.withDefault("sluice")),
  otelSampler: Config.Literals(samplerNames, "OTEL_TRACES_SAMPLER").pipe(
    Config.withDefault("parentbased_always_on" as const)
  ),
  otelSamplerRatio: Config.Finite("OTEL_TRACES_SAMPLER_ARG").pipe(Config.withDefault(1)),
  otelPropagators: Config.String("OTEL_PROPAGATORS").pipe(Config.withDefault("tracecontext"), Config.map(parseList)),
  runRetention: duration("GATEWAY_RUN_RETENTION").pipe(Config.withDefault(Duration.days(90))),
  drainTimeout: duration("GATEWAY_DRAIN_TIMEOUT").pipe(Config.withDefault(Duration.seconds(30)))
})

export type SettingsShape = Config.Success<typeof readSettings>

/** A setting whose value cannot be used. Its message is the one line that the start prints. */
export class SettingRefused extends Data.TaggedError("SettingRefused")<{
  readonly setting: string
  readonly why: string
}> {
  override get message() {
    return `${this.setting}: ${this.why}`
  }
}

const udfFiles = [
  ["GATEWAY_UDF_TLS_CERT", "udfTlsCert"],
  ["GATEWAY_UDF_TLS_KEY", "udfTlsKey"],
  ["GATEWAY_UDF_TLS_CLIENT_CA", "udfTlsClientCa"]
] as const

const isBase64Key = (text: string): boolean => Buffer.from(text, "base64").length === 32

const isDatabaseUrl = (text: string): boolean =>
  URL.canParse(text) && ["postgres:", "postgresql:"].includes(new URL(text).protocol)

const isWebUrl = (text: string): boolean => URL.canParse(text) && ["http:", "https:"].includes(new URL(text).protocol)

/** As Temporal's own tools take it. */
const isHostAndPort = (text: string): boolean =>
  /^[^\s/@?#]+:\d{1,5}$/.test(text) && URL.canParse(`http://${text}`) && !text.includes("//")

/** Nothing that would be read as more than a name in a query. */
const temporalName = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,199}$/

/** As browsers send it in `Origin`. */
const isOrigin = (text: string): boolean => text === "*" || (isWebUrl(text) && new URL(text).origin === text)

const refusals = (settings: SettingsShape): ReadonlyArray<readonly [setting: string, why: string]> => {
  const production = settings.environment === "production"
  const encryptionKey = settings.encryptionKey && Redacted.value(settings.encryptionKey)
  const previousKeys =
    settings.previousEncryptionKeys === undefined ? [] : parseList(Redacted.value(settings.previousEncryptionKeys))
  const mutualTls = udfFiles.every(([, field]) => settings[field] !== undefined)
  const badOrigin = settings.corsOrigins.find((origin) => !isOrigin(origin))
  const badTenant = settings.tenants.find((slug) => !tenantSlug.test(slug))
  const checks: ReadonlyArray<readonly [boolean, string, string]> = [
    [settings.processes < 1 || settings.processes > 64, "GATEWAY_PROCESSES", "must be between 1 and 64"],
    [settings.databaseConnections < 2, "GATEWAY_DATABASE_CONNECTIONS", "must be at least 2"],
    [
      badTenant !== undefined,
      "GATEWAY_TENANTS",
      `'${badTenant}' is no slug (a-z, 0-9, _ and -, starting with a letter)`
    ],
    [settings.tenants.includes("public"), "GATEWAY_TENANTS", "'public' is the legacy scope and cannot be a tenant"],
    [settings.opsPort === settings.port, "GATEWAY_OPS_PORT", "must differ from GATEWAY_PORT"],
    [
      mutualTls && (settings.udfPort === settings.port || settings.udfPort === settings.opsPort),
      "GATEWAY_UDF_PORT",
      "must differ from GATEWAY_PORT and GATEWAY_OPS_PORT"
    ],
    [
      settings.databaseUrl !== undefined && !isDatabaseUrl(Redacted.value(settings.databaseUrl)),
      "DATABASE_URL",
      "must be a PostgreSQL URL, such as postgresql://user:password@host:5432/database"
    ],
    [
      settings.jwksUrl !== undefined && !isWebUrl(settings.jwksUrl),
      "GATEWAY_JWKS_URL",
      "must be a URL with http: or https:"
    ],
    [
      badOrigin !== undefined,
      "GATEWAY_CORS_ORIGINS",
      `'${badOrigin}' is no origin, such as https://app.example.com (no path, no slash at its end)`
    ],
    [encryptionKey !== undefined && !isBase64Key(encryptionKey), "GATEWAY_ENCRYPTION_KEY", "must be 32 bytes, base64"],
    [
      !previousKeys.every(isBase64Key),
      "GATEWAY_PREVIOUS_ENCRYPTION_KEYS",
      "each, separated by commas, must be 32 bytes, base64"
    ],
    [
      settings.masterKey !== undefined && Redacted.value(settings.masterKey).length < 16,
      "GATEWAY_MASTER_KEY",
      "must have at least 16 characters"
    ],
    [
      settings.jwtSecret !== undefined && Redacted.value(settings.jwtSecret).length < 32,
      "GATEWAY_JWT_SECRET",
      "must have at least 32 characters"
    ],
    [production && settings.masterKey === undefined, "GATEWAY_MASTER_KEY", "must be set in production"],
    [production && settings.encryptionKey === undefined, "GATEWAY_ENCRYPTION_KEY", "must be set in production"],
    [settings.journalLimitBytes < 1024 * 1024, "GATEWAY_JOURNAL_LIMIT_BYTES", "must be at least 1048576"],
    [settings.developerMaxKeysPerUser < 0, "DEVELOPER_MAX_KEYS_PER_USER", "must not be negative"],
    [
      Duration.toMillis(settings.evalLeaseTimeout) < 1000 || Duration.toMillis(settings.evalLeaseTimeout) > 86_400_000,
      "GATEWAY_EVAL_LEASE_TIMEOUT",
      "must be between 1s and 24h"
    ],
    [Duration.toMillis(settings.idempotencyTtl) < 1000, "GATEWAY_IDEMPOTENCY_TTL", "must be at least 1s"],
    [
      settings.temporalAddress !== undefined && !isHostAndPort(settings.temporalAddress),
      "TEMPORAL_ADDRESS",
      "must be a host and a port without a scheme, such as temporal.example.com:7233"
    ],
    [!temporalName.test(settings.temporalNamespace), "TEMPORAL_NAMESPACE", "must be the name of a namespace"],
    [
      settings.temporalNamespace === "embedded",
      "TEMPORAL_NAMESPACE",
      "'embedded' is the name of the gateway's own engine"
    ],
    [
      !temporalName.test(settings.temporalTaskQueue),
      "TEMPORAL_TASK_QUEUE",
      "must have letters, digits, _, . and - only"
    ],
    [
      settings.temporalTlsCertPath !== undefined && settings.temporalTlsKeyPath === undefined,
      "TEMPORAL_TLS_CLIENT_KEY_PATH",
      "must be set too: it belongs to TEMPORAL_TLS_CLIENT_CERT_PATH"
    ],
    [
      settings.temporalTlsKeyPath !== undefined && settings.temporalTlsCertPath === undefined,
      "TEMPORAL_TLS_CLIENT_CERT_PATH",
      "must be set too: it belongs to TEMPORAL_TLS_CLIENT_KEY_PATH"
    ],
    [settings.maxInFlight < 1, "GATEWAY_MAX_IN_FLIGHT", "must be at least 1"],
    [
      settings.otelSamplerRatio < 0 || settings.otelSamplerRatio > 1,
      "OTEL_TRACES_SAMPLER_ARG",
      "must be between 0 and 1"
    ],
    ...udfFiles.map(
      ([setting, field]) =>
        [
          settings[field] === undefined && udfFiles.some(([, other]) => settings[other] !== undefined),
          setting,
          "must be set too: the mutual-TLS listener needs certificate, key and client CA"
        ] as const
    )
  ]
  return checks.filter(([refused]) => refused).map(([, setting, why]) => [setting, why])
}

/** One line of what `Config` has to say; never the value, which may be a secret. */
const whyOf = (message: string): string =>
  (message.split("\n")[0] ?? "unusable")
    .replace(/^SchemaError\(/, "")
    .replace(/^Expected /, "must be ")
    .replace("a string representing a finite number", "a number")
    .replaceAll(" | ", " or ")

/** The settings of this process, checked. */
export class Settings extends Context.Service<Settings, SettingsShape>()("sluice/Settings") {
  /** Fails with `SettingRefused`, which names the setting. */
  static readonly layer = Layer.effect(
    Settings,
    Effect.gen(function* () {
      const settings = yield* readSettings
      const [refusal] = refusals(settings)
      if (refusal !== undefined) return yield* new SettingRefused({ setting: refusal[0], why: refusal[1] })
      return Settings.of(settings)
    }).pipe(
      Effect.catchTag("ConfigError", (error) =>
        Effect.fail(
          new SettingRefused({
            setting: /at \["([A-Z0-9_]+)"\]/.exec(error.message)?.[1] ?? "settings",
            why: whyOf(error.message)
          })
        )
      )
    )
  )
}
