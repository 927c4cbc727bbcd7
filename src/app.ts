/** The composition root: settings in, one Layer out. Only this file knows which layer serves which service. */
import { join, resolve } from "node:path"
import { Effect, Layer } from "effect"
import * as ApiServer from "#http/server.ts"
import * as OpsServer from "#http/ops.ts"
import * as AccessControlPostgres from "#layers/access/AccessControlPostgres.ts"
import * as GroupDirectoryPostgres from "#layers/access/GroupDirectoryPostgres.ts"
import * as AssetCatalogPostgres from "#layers/assets/AssetCatalogPostgres.ts"
import * as BillingExportPostgres from "#layers/billing/BillingExportPostgres.ts"
import * as OrganizationUsagePostgres from "#layers/billing/OrganizationUsagePostgres.ts"
import * as AccountSpendPostgres from "#layers/budgets/AccountSpendPostgres.ts"
import * as BudgetLedgerPostgres from "#layers/budgets/BudgetLedgerPostgres.ts"
import * as AlertsPostgres from "#layers/callbacks/AlertsPostgres.ts"
import * as CallbackRegistryPostgres from "#layers/callbacks/CallbackRegistryPostgres.ts"
import * as CallbackSenderUndici from "#layers/callbacks/CallbackSenderUndici.ts"
import * as OutboxPostgres from "#layers/callbacks/OutboxPostgres.ts"
import * as ProvenanceOutbox from "#layers/callbacks/ProvenanceOutbox.ts"
import * as CatalogTagsPostgres from "#layers/catalog/CatalogTagsPostgres.ts"
import * as ConfigurationPostgres from "#layers/configuration/ConfigurationPostgres.ts"
import * as EvalJobsPostgres from "#layers/evals/EvalJobsPostgres.ts"
import * as EvalLeaseManagerPostgres from "#layers/evals/EvalLeaseManagerPostgres.ts"
import * as EvalRunStarterPulled from "#layers/evals/EvalRunStarterPulled.ts"
import * as UploadSpoolDisk from "#layers/files/UploadSpoolDisk.ts"
import * as DeveloperAuditPostgres from "#layers/developer/DeveloperAuditPostgres.ts"
import * as DeveloperKeysPostgres from "#layers/developer/DeveloperKeysPostgres.ts"
import * as DeveloperSessionsPostgres from "#layers/developer/DeveloperSessionsPostgres.ts"
import * as DeveloperUsagePostgres from "#layers/developer/DeveloperUsagePostgres.ts"
import * as ExpiredRows from "#layers/developer/ExpiredRows.ts"
import * as GuardrailEnginePostgres from "#layers/guardrails/GuardrailEnginePostgres.ts"
import * as GuardrailWebhooksTransport from "#layers/guardrails/GuardrailWebhooksTransport.ts"
import * as RedactionStorePostgres from "#layers/guardrails/RedactionStorePostgres.ts"
import * as GuardrailRegistryPostgres from "#layers/guardrails/GuardrailRegistryPostgres.ts"
import * as AdministratorTokensJose from "#layers/identity/AdministratorTokensJose.ts"
import * as MasterKeyDigest from "#layers/identity/MasterKeyDigest.ts"
import * as GuardrailModelsRouted from "#layers/inference/GuardrailModelsRouted.ts"
import * as ModelCallsGoverned from "#layers/inference/ModelCallsGoverned.ts"
import { providerRouterUndici } from "#layers/inference/ProviderRouterUndici.ts"
import { transportUndici } from "#layers/inference/TransportUndici.ts"
import * as KeyStorePostgres from "#layers/keys/KeyStorePostgres.ts"
import * as CredentialVaultPostgres from "#layers/models/CredentialVaultPostgres.ts"
import * as ModelRegistryPostgres from "#layers/models/ModelRegistryPostgres.ts"
import * as ProviderCatalogTransport from "#layers/models/ProviderCatalogTransport.ts"
import * as ProvisioningFromEnvironment from "#layers/models/ProvisioningFromEnvironment.ts"
import { registerSandboxModels } from "#layers/models/sandbox-models.ts"
import * as BudgetTiersPostgres from "#layers/budgets/BudgetTiersPostgres.ts"
import * as PlanTiersPostgres from "#layers/budgets/PlanTiersPostgres.ts"
import * as SoftBudgetEvents from "#layers/budgets/SoftBudgetEvents.ts"
import * as SoftBudgetsPostgres from "#layers/budgets/SoftBudgetsPostgres.ts"
import * as CustomerPoliciesPostgres from "#layers/people/CustomerPoliciesPostgres.ts"
import * as CustomersPostgres from "#layers/people/CustomersPostgres.ts"
import * as OrganizationsPostgres from "#layers/people/OrganizationsPostgres.ts"
import * as TeamsPostgres from "#layers/people/TeamsPostgres.ts"
import * as UsersPostgres from "#layers/people/UsersPostgres.ts"
import * as OwnerSpendPostgres from "#layers/usage/OwnerSpendPostgres.ts"
import * as ReadinessProbes from "#layers/operations/ReadinessProbes.ts"
import * as ServingInMemory from "#layers/operations/ServingInMemory.ts"
import * as ExpressionsProcess from "#layers/pipelines/ExpressionsProcess.ts"
import * as OperatorsGoverned from "#layers/pipelines/OperatorsGoverned.ts"
import * as PipelineDefinitionsCatalog from "#layers/pipelines/PipelineDefinitionsCatalog.ts"
import * as PipelineWorkerTemporal from "#layers/pipelines/PipelineWorkerTemporal.ts"
import * as PipelineRunsPostgres from "#layers/pipelines/PipelineRunsPostgres.ts"
import * as RunRecordsPostgres from "#layers/pipelines/RunRecordsPostgres.ts"
import * as RunRetention from "#layers/pipelines/RunRetention.ts"
import * as RunStreamsPolling from "#layers/pipelines/RunStreamsPolling.ts"
import * as WorkflowEngineOff from "#layers/pipelines/WorkflowEngineOff.ts"
import * as WorkflowEnginePostgres from "#layers/pipelines/WorkflowEnginePostgres.ts"
import * as WorkflowEngineTemporal from "#layers/pipelines/WorkflowEngineTemporal.ts"
import type { TemporalOptions } from "#layers/pipelines/temporal/connection.ts"
import * as ProvenancePostgres from "#layers/provenance/ProvenancePostgres.ts"
import * as TracesPostgres from "#layers/provenance/TracesPostgres.ts"
import * as GeneratedSecrets from "#layers/security/GeneratedSecrets.ts"
import * as ResealPostgres from "#layers/security/ResealPostgres.ts"
import * as SecretsAesGcm from "#layers/security/SecretsAesGcm.ts"
import * as ChangeFeedPostgres from "#layers/storage/ChangeFeedPostgres.ts"
import * as DatabasePostgres from "#layers/storage/DatabasePostgres.ts"
import { lockDataDir } from "#layers/storage/DataDirLock.ts"
import * as EmbeddedPostgres from "#layers/storage/EmbeddedPostgres.ts"
import { instanceId } from "#layers/storage/instance-id.ts"
import * as RunningPostgres from "#layers/storage/RunningPostgres.ts"
import * as MigrationsPostgres from "#layers/storage/MigrationsPostgres.ts"
import * as TagsPostgres from "#layers/tags/TagsPostgres.ts"
import * as TelemetryOtlp from "#layers/telemetry/TelemetryOtlp.ts"
import * as TenantsPostgres from "#layers/tenants/TenantsPostgres.ts"
import * as TokenCounterWorker from "#layers/tokens/TokenCounterWorker.ts"
import { recordedSpend } from "#layers/usage/recorded-spend.ts"
import * as UsageLedgerPostgres from "#layers/usage/UsageLedgerPostgres.ts"
import * as WorkerThreadsNode from "#layers/workers/WorkerThreadsNode.ts"
import { BudgetReclaim } from "#services/budgets/BudgetReclaim.ts"
import { DatabaseServer, DatabaseStartError } from "#services/storage/DatabaseServer.ts"
import { Migrations } from "#services/storage/Migrations.ts"
import type { SettingsShape } from "#src/config.ts"

/** The database server, and the data dir locked: embedded there, or the one that DATABASE_URL names. */
export const databaseServer = (settings: SettingsShape) => {
  const dataDir = resolve(settings.dataDir)
  return settings.databaseUrl === undefined
    ? EmbeddedPostgres.layer({ dataDir })
    : // The journal and the secrets are in the data dir all the same.
      EmbeddedPostgres.layerExternal(settings.databaseUrl).pipe(Layer.tap(() => lockDataDir(dataDir)))
}

/** The database server that the primary named, whose data dir the primary has locked. */
export const databaseServerOf = (settings: SettingsShape) =>
  settings.databaseUrl === undefined
    ? Layer.effect(DatabaseServer, new DatabaseStartError({ message: "DATABASE_URL is missing in a worker process" }))
    : EmbeddedPostgres.layerExternal(settings.databaseUrl)

/** The database of a gateway for a process beside it: the one that DATABASE_URL names, or that it has started itself. */
export const runningDatabaseServer = (settings: SettingsShape) =>
  settings.databaseUrl === undefined
    ? RunningPostgres.layer(
        resolve(settings.dataDir),
        Layer.effect(
          DatabaseServer,
          new DatabaseStartError({
            message: `DATABASE_URL: must be set, for no gateway is running in ${resolve(settings.dataDir)} whose database could be used`
          })
        )
      )
    : EmbeddedPostgres.layerExternal(settings.databaseUrl)

/** The database server for a command: that of a gateway which runs in the data dir, or one of its own where none does. */
export const databaseBeside = (settings: SettingsShape) =>
  settings.databaseUrl === undefined
    ? RunningPostgres.layer(resolve(settings.dataDir), databaseServer(settings))
    : databaseServerOf(settings)

/** Pool, migrations, tenants and change feed over a database server. */
export const database = (settings: SettingsShape) =>
  Layer.mergeAll(TenantsPostgres.layer(settings.tenants), ChangeFeedPostgres.layer).pipe(
    Layer.provideMerge(MigrationsPostgres.layer),
    Layer.provideMerge(DatabasePostgres.layer({ poolSize: settings.databaseConnections }))
  )

/** The audit chains of the database as it is: reading them migrates nothing. */
export const provenanceOf = (settings: SettingsShape) =>
  ProvenancePostgres.layer.pipe(
    Layer.provideMerge(TenantsPostgres.layer(settings.tenants)),
    Layer.provide(Layer.succeed(Migrations, { migrate: () => Effect.void })),
    Layer.provide(DatabasePostgres.layer({ poolSize: 1 })),
    // Nothing of the data dir is touched, so a running gateway may keep it.
    Layer.provide(databaseBeside(settings))
  )

/** The instance's secrets, from the settings or the data dir. */
export const secrets = (settings: SettingsShape) =>
  GeneratedSecrets.layer({
    dataDir: resolve(settings.dataDir),
    masterKey: settings.masterKey,
    encryptionKey: settings.encryptionKey,
    previousEncryptionKeys: settings.previousEncryptionKeys
  })

/** Verifies and mints administrator tokens. */
export const administratorTokens = (settings: SettingsShape) =>
  AdministratorTokensJose.layer({
    secret: settings.jwtSecret,
    jwksUrl: settings.jwksUrl,
    issuer: settings.jwtIssuer,
    audience: settings.jwtAudience
  })

/** Sessions of developers for a command beside a running gateway, or without one. */
export const developerSessions = (settings: SettingsShape) =>
  DeveloperSessionsPostgres.layer.pipe(
    Layer.provide(ProvenancePostgres.layer),
    Layer.provide(TenantsPostgres.layer(settings.tenants)),
    Layer.provide(MigrationsPostgres.layer),
    Layer.provide(DatabasePostgres.layer({ poolSize: 2 })),
    Layer.provide(databaseBeside(settings))
  )

/** Where this process is in its life. */
export const serving = ServingInMemory.layer

/** What seals everything anew, for a command beside a running gateway or without one. */
export const resealing = (settings: SettingsShape) =>
  ResealPostgres.layer.pipe(
    Layer.provide(SecretsAesGcm.layer),
    Layer.provide(secrets(settings)),
    Layer.provide(TenantsPostgres.layer(settings.tenants)),
    Layer.provide(MigrationsPostgres.layer),
    Layer.provide(DatabasePostgres.layer({ poolSize: 2 })),
    Layer.provide(databaseBeside(settings))
  )

/** OpenTelemetry, where an address for it is set; nothing at all otherwise. */
const telemetry = (settings: SettingsShape) => {
  const addressOf = (exporter: "otlp" | "none", own: URL | undefined, signal: string): string | undefined => {
    if (settings.otelDisabled || exporter === "none") return undefined
    return own?.href ?? (settings.otelEndpoint && `${settings.otelEndpoint.href.replace(/\/$/, "")}/v1/${signal}`)
  }
  const traces = addressOf(settings.otelTracesExporter, settings.otelTracesEndpoint, "traces")
  const metrics = addressOf(settings.otelMetricsExporter, settings.otelMetricsEndpoint, "metrics")
  const logs = addressOf(settings.otelLogsExporter, settings.otelLogsEndpoint, "logs")
  if (traces === undefined && metrics === undefined && logs === undefined) return Layer.empty
  return TelemetryOtlp.layer({
    traces,
    metrics,
    logs,
    headers: settings.otelHeaders,
    protocol: settings.otelProtocol,
    serviceName: settings.otelServiceName,
    serviceVersion: "0.1.0",
    sampler: settings.otelSampler,
    samplerRatio: settings.otelSamplerRatio,
    propagated: settings.otelPropagators.includes("tracecontext")
  })
}

/** Which of the processes of this data dir a gateway is. */
export interface WorkerIdentity {
  /** `0` to `GATEWAY_PROCESSES - 1`. */
  readonly index: number
  readonly count: number
}

/** The way out to upstream providers. */
const upstream = (settings: SettingsShape) => transportUndici({ allowPrivate: settings.allowPrivateUpstreams })

/** What a model call goes through, over a database. */
const modelPath = (settings: SettingsShape, worker: WorkerIdentity, transport: ReturnType<typeof upstream>) => {
  const dataDir = resolve(settings.dataDir)
  const journals = join(dataDir, "journal")
  const production = settings.environment === "production"

  const security = Layer.mergeAll(SecretsAesGcm.layer, MasterKeyDigest.layer)

  // What is audited, callbacks may hear of, in the same transaction.
  const audit = ProvenanceOutbox.layer.pipe(
    Layer.provide(ProvenancePostgres.layer),
    Layer.provideMerge(OutboxPostgres.layer)
  )

  const ledgers = Layer.unwrap(
    Effect.gen(function* () {
      const holder = `${instanceId(dataDir)}:${worker.index}`
      const budgets = SoftBudgetEvents.layer.pipe(
        Layer.provide(SoftBudgetsPostgres.layer),
        Layer.provideMerge(BudgetLedgerPostgres.layer({ holder, initialSpent: yield* recordedSpend }))
      )
      // What a former life left is written before its shares are given back: no call is counted twice, none forgotten.
      const recovered = Layer.effectDiscard(
        Effect.gen(function* () {
          yield* UsageLedgerPostgres.replayJournals(journals, (name) => {
            const index = Number(name)
            // The first worker also takes over from those of a time with more processes.
            return index !== worker.index && !(worker.index === 0 && index >= worker.count)
          })
          const budgets = yield* BudgetReclaim
          yield* budgets.reclaim(holder)
        })
      )
      return UsageLedgerPostgres.layer({
        directory: journals,
        worker: String(worker.index),
        limitBytes: settings.journalLimitBytes
      }).pipe(Layer.provide(recovered), Layer.provideMerge(budgets))
    })
  ).pipe(Layer.provideMerge(audit))

  const models = Layer.mergeAll(ModelRegistryPostgres.layer, CredentialVaultPostgres.layer)

  const inference = providerRouterUndici({ sandbox: !production }).pipe(Layer.provide(transport))
  // Tenants name these addresses, so they are guarded as callbacks are and not as upstreams.
  const webhooks = GuardrailWebhooksTransport.layer.pipe(
    Layer.provide(transportUndici({ allowPrivate: settings.allowPrivateCallbacks, connections: 1000 }))
  )
  const guardrails = GuardrailEnginePostgres.layer.pipe(
    Layer.provide([webhooks, GuardrailModelsRouted.layer]),
    Layer.merge(RedactionStorePostgres.layer)
  )

  const calls = ModelCallsGoverned.layer({ maxInFlight: settings.maxInFlight })

  return calls.pipe(
    Layer.provideMerge(CustomerPoliciesPostgres.layer()),
    Layer.provideMerge(guardrails),
    // Beneath whatever calls models, guardrails included: they tell it what callbacks hear of.
    Layer.provideMerge(AlertsPostgres.layer),
    Layer.provideMerge(Layer.mergeAll(inference, TokenCounterWorker.layer)),
    Layer.provideMerge(Layer.mergeAll(models, KeyStorePostgres.layer())),
    Layer.provideMerge(ledgers),
    Layer.provideMerge(Layer.mergeAll(security, WorkerThreadsNode.layer))
  )
}

/** Everything behind the listeners, over a database. */
export const services = (settings: SettingsShape, worker: WorkerIdentity) => {
  const dataDir = resolve(settings.dataDir)
  const production = settings.environment === "production"
  const transport = upstream(settings)

  const provisioning = ProvisioningFromEnvironment.layer({ production, environment: process.env }).pipe(
    Layer.provide(ProviderCatalogTransport.layer),
    Layer.provide(transport)
  )
  // The first request to a fresh gateway works.
  const sandbox = Layer.effectDiscard(production ? Effect.void : registerSandboxModels)

  const uploads = UploadSpoolDisk.layer({
    directory: join(dataDir, "uploads", String(worker.index)),
    // The first worker also clears away after those of a time with more processes.
    abandoned: (name) => worker.index === 0 && /^\d+$/.test(name) && Number(name) >= worker.count
  })

  const outward = { allowPrivate: settings.allowPrivateCallbacks }
  const administration = Layer.mergeAll(
    AccessControlPostgres.layer,
    GroupDirectoryPostgres.layer,
    BillingExportPostgres.layer,
    OrganizationUsagePostgres.layer,
    CallbackRegistryPostgres.layer(outward),
    CallbackSenderUndici.layer(outward),
    CatalogTagsPostgres.layer,
    ConfigurationPostgres.layer,
    GuardrailRegistryPostgres.layer,
    TagsPostgres.layer
  )

  const people = Layer.mergeAll(
    UsersPostgres.layer,
    TeamsPostgres.layer,
    OrganizationsPostgres.layer,
    CustomersPostgres.layer,
    BudgetTiersPostgres.layer,
    PlanTiersPostgres.layer
  ).pipe(Layer.provideMerge(Layer.mergeAll(OwnerSpendPostgres.layer, AccountSpendPostgres.layer)))

  const developers = Layer.mergeAll(
    DeveloperKeysPostgres.layer({
      maxKeys: settings.developerMaxKeysPerUser,
      idempotencyTtl: settings.idempotencyTtl
    }),
    DeveloperSessionsPostgres.layer,
    DeveloperUsagePostgres.layer,
    DeveloperAuditPostgres.layer,
    ExpiredRows.layer
  )

  const evals = Layer.mergeAll(
    AssetCatalogPostgres.layer,
    EvalJobsPostgres.layer,
    EvalLeaseManagerPostgres.layer({ visibilityTimeout: settings.evalLeaseTimeout }),
    TracesPostgres.layer
  ).pipe(Layer.provide(EvalRunStarterPulled.layer))

  const temporal = temporalOf(settings)
  const embedded = Layer.unwrap(
    Effect.sync(() => WorkflowEnginePostgres.layer({ holder: `${instanceId(dataDir)}:${worker.index}` }))
  ).pipe(Layer.provide(OperatorsGoverned.layer))
  const workflowEngine =
    settings.workflowEngine === "off"
      ? WorkflowEngineOff.layer
      : temporal === undefined
        ? embedded
        : WorkflowEngineTemporal.layer(temporal)
  const pipelines = Layer.mergeAll(
    RunStreamsPolling.layer(),
    PipelineRunsPostgres.layer,
    RunRetention.layer({ keep: settings.runRetention })
  ).pipe(
    Layer.provide(workflowEngine),
    Layer.provide(RunRecordsPostgres.layer),
    Layer.provideMerge(Layer.mergeAll(PipelineDefinitionsCatalog.layer, ExpressionsProcess.layer()))
  )

  return ReadinessProbes.layer.pipe(
    Layer.provideMerge(pipelines),
    Layer.provideMerge(evals),
    Layer.provideMerge(developers),
    Layer.provideMerge(administration),
    Layer.provideMerge(people),
    Layer.provideMerge(Layer.mergeAll(provisioning, sandbox, administratorTokens(settings), uploads)),
    Layer.provideMerge(modelPath(settings, worker, transport)),
    // Merged, for the listener is part of a trace too.
    Layer.provideMerge(telemetry(settings))
  )
}

/** Temporal, where its address is set. */
const temporalOf = (settings: SettingsShape): TemporalOptions | undefined => {
  const {
    temporalAddress: address,
    temporalApiKey: apiKey,
    temporalNamespace: namespace,
    temporalTaskQueue: taskQueue,
    temporalTls,
    temporalTlsCaPath: caFile,
    temporalTlsCertPath: certFile,
    temporalTlsKeyPath: keyFile,
    temporalTlsServerName: serverName
  } = settings
  if (address === undefined) return undefined
  const tls = { certFile, keyFile, caFile, serverName }
  const implied = apiKey !== undefined || Object.values(tls).some((value) => value !== undefined)
  return { address, apiKey, namespace, taskQueue, tls: (temporalTls ?? implied) ? tls : undefined }
}

/** Workers that may share one data dir. */
const maxWorkers = 64

/** A directory for this worker alone: what a dead one left in it, the next one takes over. */
const workerDirectory = Effect.fnUntraced(function* (dataDir: string) {
  for (let index = 0; ; index++) {
    const directory = join(dataDir, "pipeline-workers", String(index))
    const locked = yield* Effect.result(lockDataDir(directory))
    if (locked._tag === "Success") return directory
    if (index === maxWorkers - 1) return yield* Effect.fail(locked.failure)
  }
})

/** What works on the runs of pipelines for Temporal, over a database; undefined where no Temporal is set. */
export const pipelineWorker = (settings: SettingsShape) => {
  const temporal = temporalOf(settings)
  if (temporal === undefined) return undefined
  const inDirectory = (dataDir: string) =>
    PipelineWorkerTemporal.layer({ ...temporal, drainTimeout: settings.drainTimeout }).pipe(
      Layer.provide([RunRecordsPostgres.layer, OperatorsGoverned.layer, ExpressionsProcess.layer()]),
      Layer.provide(modelPath({ ...settings, dataDir }, { index: 0, count: 1 }, upstream(settings))),
      Layer.provide(telemetry(settings))
    )
  return Layer.unwrap(Effect.map(workerDirectory(resolve(settings.dataDir)), inDirectory))
}

/** The mutual-TLS listener, where its three files are set. */
const mutualTls = (settings: SettingsShape) => {
  const { udfHost: host, udfPort: port, udfTlsCert: cert, udfTlsClientCa: clientCa, udfTlsKey: key } = settings
  return cert === undefined || key === undefined || clientCa === undefined
    ? undefined
    : { host, port, cert, key, clientCa }
}

/** The API listener over the services. */
export const apiListener = (settings: SettingsShape) =>
  ApiServer.layer({
    host: settings.host,
    port: settings.port,
    corsOrigins: settings.corsOrigins,
    udf: mutualTls(settings),
    drainTimeout: settings.drainTimeout
  })

/** The ops listener over the services. */
export const opsListener = (settings: SettingsShape) => OpsServer.layer({ host: settings.host, port: settings.opsPort })
