import { createHash } from "node:crypto"
import { Redacted } from "effect"
import type { Json, JsonObject } from "#domain/json.ts"
import { limitOf, type Limit, Window } from "#domain/limits.ts"
import { accountFrom, type Environment, settingsFrom } from "#domain/providers/environment.ts"
import { findPreset, type ProviderPreset } from "#domain/providers/presets.ts"
import { knownModel } from "#domain/providers/prices.ts"
import { type Price, priceOf } from "#domain/usage.ts"
import type { BreakerOptions } from "#layers/inference/CircuitBreaker.ts"
import {
  type Deployment,
  DeploymentState,
  type Group,
  type RoutingTable,
  type UnusableDeployment
} from "#layers/inference/Deployment.ts"
import { sandboxPreset, sandboxTransport } from "#layers/inference/sandbox/SandboxTransport.ts"
import { wires } from "#layers/inference/wires/table.ts"
import type { RoutableModel } from "#services/inference/ProviderRouter.ts"
import type { TransportShape } from "#services/inference/Transport.ts"
import type { RegisteredModel } from "#services/models/ModelRegistry.ts"

/** What compiling needs from around it. */
export interface CompileContext {
  readonly transport: TransportShape
  /** Whether `sandbox/…` models may answer. */
  readonly sandbox: boolean
  readonly environment: Environment
  readonly reveal: (credentialName: string) => Redacted.Redacted<JsonObject> | undefined
  readonly breaker: BreakerOptions
  readonly now: () => number
}

const defaultTimeout = 300
const defaultStreamTimeout = 60
const defaultRetries = 2
/** What is reserved for, where nobody says how long an answer may be. */
const defaultMaxOutputTokens = 16_384
/** How far fallbacks of fallbacks go. */
export const deepestFallback = 3

const text = (value: Json | undefined): string | undefined =>
  typeof value === "string" && value.trim() !== "" ? value.trim() : undefined

const number = (value: Json | undefined, least: number, most: number): number | undefined => {
  const read = typeof value === "string" && value.trim() !== "" ? Number(value) : value
  return typeof read === "number" && Number.isFinite(read) && read >= least ? Math.min(read, most) : undefined
}

const names = (value: Json | undefined): ReadonlyArray<string> =>
  Array.isArray(value)
    ? (value as ReadonlyArray<Json>).filter((one): one is string => typeof one === "string").slice(0, 20)
    : []

interface UpstreamName {
  readonly provider: string
  readonly upstreamModel: string
  readonly preset: ProviderPreset | undefined
}

/** Reads `provider/name`; without a known provider before the slash the whole is the name at an OpenAI-shaped base. */
const upstreamName = (params: JsonObject): UpstreamName => {
  const model = text(params["model"]) ?? ""
  const slash = model.indexOf("/")
  const prefix = slash === -1 ? "" : model.slice(0, slash)
  const found = prefix === sandboxPreset.name ? sandboxPreset : findPreset(prefix)
  const named = text(params["custom_llm_provider"])
  if (named !== undefined) {
    const preset = named === sandboxPreset.name ? sandboxPreset : findPreset(named)
    const same = preset !== undefined && preset === found
    return { provider: preset?.name ?? named, upstreamModel: same ? model.slice(slash + 1) : model, preset }
  }
  if (found !== undefined) return { provider: found.name, upstreamModel: model.slice(slash + 1), preset: found }
  if (slash === -1 || text(params["api_base"]) !== undefined) {
    const provider = slash === -1 && text(params["api_base"]) === undefined ? "openai" : "openai_compatible"
    return { provider, upstreamModel: model, preset: findPreset(provider) }
  }
  return { provider: prefix, upstreamModel: model.slice(slash + 1), preset: undefined }
}

const accountFields = ["api_key", "aws_access_key_id", "aws_secret_access_key", "aws_session_token", "azure_ad_token"]

/** Whether a row, with its credential, says itself who pays. */
const namesAccount = (params: JsonObject): boolean => accountFields.some((field) => text(params[field]) !== undefined)

const secretNames = /key|secret|token|password|credential/i

const limitsOf = (id: string, params: JsonObject): ReadonlyArray<Limit> => {
  const rpm = number(params["rpm"], 1, Number.MAX_SAFE_INTEGER)
  const tpm = number(params["tpm"], 1, Number.MAX_SAFE_INTEGER)
  return [
    ...(rpm === undefined ? [] : [limitOf("deployment", id, "requests", BigInt(Math.trunc(rpm)), Window.Minute())]),
    ...(tpm === undefined ? [] : [limitOf("deployment", id, "tokens", BigInt(Math.trunc(tpm)), Window.Minute())])
  ]
}

/** `model_info`, with what the bundled table knows wherever the operator says nothing. */
const infoOf = (name: UpstreamName, modelInfo: JsonObject): JsonObject => {
  const known = name.provider === sandboxPreset.name ? freeModel : knownModel(name.provider, name.upstreamModel)
  const said = Object.fromEntries(Object.entries(modelInfo).filter(([, value]) => value !== null))
  return { ...known, ...said }
}

const freeModel: JsonObject = { input_cost_per_token: 0, output_cost_per_token: 0, max_output_tokens: 4_096 }

const sandboxOff = "the sandbox provider is off in production"

const compileRow = (
  row: RegisteredModel,
  context: CompileContext,
  previous: ReadonlyMap<string, DeploymentState>
): Deployment | UnusableDeployment => {
  const named = text(row.gatewayParams["credential_name"])
  const revealed = named === undefined ? undefined : context.reveal(named)
  const credential = revealed === undefined ? {} : Redacted.value(revealed)
  const given: JsonObject = { ...row.gatewayParams, ...credential }
  const name = upstreamName(row.gatewayParams)
  const { preset, provider, upstreamModel } = name
  const unusable = (problem: string): UnusableDeployment => ({
    id: row.id,
    modelName: row.modelName,
    provider,
    upstreamModel,
    fallbacks: names(given["fallbacks"]),
    problem
  })
  if (named !== undefined && revealed === undefined) return unusable(`the credential '${named}' does not exist`)
  if (upstreamModel === "") return unusable("gateway_params.model is missing")
  if (preset === undefined) return unusable(`the provider '${provider}' is unknown and api_base is not set`)
  if (preset === sandboxPreset && !context.sandbox) return unusable(sandboxOff)
  const wire = wires[preset.wire]
  if (wire === undefined) return unusable(`the provider '${provider}' is not supported`)

  const ownBase = text(row.gatewayParams["api_base"]) ?? text(given["api_base"])
  const environmentBase = preset.baseVariables.map((variable) => context.environment[variable]).find(Boolean)
  const apiBase = (ownBase ?? environmentBase ?? preset.apiBase ?? "").replace(/\/+$/, "")
  // A key from the environment goes to the provider it belongs to, never to a base that a model row names; and parts of
  // two accounts are none.
  const settings = ownBase === undefined ? settingsFrom(preset, context.environment) : {}
  const account = ownBase !== undefined || namesAccount(given) ? {} : accountFrom(preset, context.environment)
  const params: JsonObject = { ...settings, ...given, ...account }
  const apiKey = text(params["api_key"])
  if (apiKey === undefined && ownBase === undefined && preset.keyVariables.length > 0 && preset.wire !== "bedrock") {
    return unusable("no api_key: neither the model, its credential nor the environment has one")
  }
  const info = infoOf(name, row.modelInfo)
  const maxOutputTokens =
    number(info["max_output_tokens"] ?? info["max_tokens"], 1, 10_000_000) ?? defaultMaxOutputTokens
  const bound = wire.bind({
    provider,
    upstreamModel,
    apiBase,
    apiKey: apiKey === undefined ? undefined : Redacted.make(apiKey),
    apiKeyHeader: text(params["api_key_header"]) ?? preset.apiKeyHeader ?? undefined,
    params: Redacted.make(params),
    dropParams: params["drop_params"] === true || row.modelInfo["drop_params"] === true,
    maxOutputTokens,
    streamUsage: preset.streamUsage
  })
  if (typeof bound === "string") return unusable(bound)

  const fingerprint = createHash("sha256")
    .update(JSON.stringify([params, apiBase, apiKey ?? null]))
    .digest("hex")
  const known = previous.get(row.id)
  return {
    id: row.id,
    modelName: row.modelName,
    served: { deploymentId: row.id, provider, upstreamModel, price: priceOf(info) },
    wire: bound,
    transport: preset === sandboxPreset ? sandboxTransport(context.now) : context.transport,
    weight: number(params["weight"], 0.001, 1_000_000) ?? 1,
    priority: number(params["priority"] ?? params["order"], 0, 1_000_000) ?? 1,
    timeout: (number(params["timeout"], 0.01, 86_400) ?? defaultTimeout) * 1000,
    streamTimeout: (number(params["stream_timeout"], 0.01, 86_400) ?? defaultStreamTimeout) * 1000,
    maxRetries: Math.trunc(number(params["max_retries"], 0, 10) ?? defaultRetries),
    limits: limitsOf(row.id, params),
    maxOutputTokens,
    maxInputTokens: number(info["max_input_tokens"], 1, 100_000_000),
    fallbacks: names(params["fallbacks"]),
    secrets: [
      apiKey,
      ...Object.entries(params).map(([field, value]) => (secretNames.test(field) ? value : null))
    ].filter((value): value is string => typeof value === "string" && value.length >= 6),
    state:
      known !== undefined && known.fingerprint === fingerprint
        ? known
        : new DeploymentState(fingerprint, context.breaker, context.now)
  }
}

const dearer = (left: Price | undefined, right: Price | undefined): Price | undefined => {
  if (left === undefined || right === undefined) return left ?? right
  const most = (name: keyof Price) => (left[name] > right[name] ? left[name] : right[name])
  return {
    input: most("input"),
    output: most("output"),
    cacheRead: most("cacheRead"),
    cacheWrite: most("cacheWrite"),
    request: most("request"),
    image: most("image"),
    second: most("second")
  }
}

const groupBy = <A>(items: ReadonlyArray<A>, key: (item: A) => string): Map<string, Array<A>> => {
  const groups = new Map<string, Array<A>>()
  for (const item of items) {
    const name = key(item)
    const group = groups.get(name)
    if (group === undefined) groups.set(name, [item])
    else group.push(item)
  }
  return groups
}

/** The deployments a call for a name may end at: its own, and those of its fallbacks. */
const reachable = (name: string, byName: ReadonlyMap<string, ReadonlyArray<Deployment>>): ReadonlyArray<Deployment> => {
  const seen = new Set([name])
  let level: ReadonlyArray<string> = [name]
  const found: Array<Deployment> = []
  for (let depth = 0; depth <= deepestFallback && level.length > 0; depth += 1) {
    const deployments = level.flatMap((one) => byName.get(one) ?? [])
    found.push(...deployments)
    level = [...new Set(deployments.flatMap((one) => one.fallbacks))].filter((one) => !seen.has(one))
    for (const one of level) seen.add(one)
  }
  return found
}

const routableOf = (name: string, byName: ReadonlyMap<string, ReadonlyArray<Deployment>>): RoutableModel => {
  const own = byName.get(name) ?? []
  const all = reachable(name, byName)
  const inputs = own.map((one) => one.maxInputTokens).filter((most) => most !== undefined)
  return {
    name,
    price: all.reduce<Price | undefined>((price, one) => dearer(price, one.served.price), undefined),
    maxOutputTokens: all.length === 0 ? defaultMaxOutputTokens : Math.max(...all.map((one) => one.maxOutputTokens)),
    maxInputTokens: inputs.length > 0 && inputs.length === own.length ? Math.min(...inputs) : undefined,
    operations: new Set(own.flatMap((one) => [...one.wire.operations]))
  }
}

const tiersOf = (deployments: ReadonlyArray<Deployment>): ReadonlyArray<ReadonlyArray<Deployment>> =>
  [...groupBy(deployments, (one) => String(one.priority)).values()].sort(
    (left, right) => (left[0]?.priority ?? 0) - (right[0]?.priority ?? 0)
  )

/** Compiles the registry's rows into a routing table. Deployments whose settings did not change keep their state. */
export const compile = (
  rows: ReadonlyArray<RegisteredModel>,
  context: CompileContext,
  previous?: RoutingTable
): RoutingTable => {
  const states = new Map(previous?.deployments.map((one) => [one.id, one.state]))
  const compiled = rows.map((row) => compileRow(row, context, states))
  const deployments = compiled.filter((one) => "wire" in one)
  const unusable = compiled.filter((one): one is UnusableDeployment => "problem" in one)
  const byName = groupBy(deployments, (one) => one.modelName)
  const fallbacks = groupBy(compiled, (one) => one.modelName)
  const off = new Set(unusable.filter(({ problem }) => problem === sandboxOff).map(({ modelName }) => modelName))
  const groups = new Map<string, Group>()
  for (const name of new Set(rows.map((row) => row.modelName))) {
    const own = byName.get(name) ?? []
    groups.set(name, {
      name,
      tiers: tiersOf(own),
      fallbacks: [...new Set(fallbacks.get(name)?.flatMap((one) => one.fallbacks))],
      sandboxOff: own.length === 0 && off.has(name),
      routable: routableOf(name, byName)
    })
  }
  return { groups, deployments, unusable }
}
