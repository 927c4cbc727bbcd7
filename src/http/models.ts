import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { ManagementCaller } from "#api/access.ts"
import { Api } from "#api/Api.ts"
import { parametersOf } from "#api/models.ts"
import { instantText } from "#domain/instants.ts"
import { actorOf } from "#domain/principal.ts"
import { type DeploymentHealth, ProviderRouter } from "#services/inference/ProviderRouter.ts"
import { ModelRegistry, type RegisteredModel } from "#services/models/ModelRegistry.ts"

const shown = (model: RegisteredModel) => ({
  id: model.id,
  model_id: model.id,
  name: model.modelName,
  model_name: model.modelName,
  gateway_params: model.gatewayParams,
  model_info: model.modelInfo,
  created_at: instantText(model.createdAt)
})

/** Providers that run on the operator's own machines. */
const selfHosted: ReadonlySet<string> = new Set(["ollama", "vllm", "lm_studio", "sandbox"])

const privateHost =
  /^(localhost|.*\.(local|internal|lan)|127\..*|10\..*|192\.168\..*|172\.(1[6-9]|2\d|3[01])\..*|\[::1\]|\[f[cd].*\])$/

const isSelfHosted = (model: RegisteredModel, provider: string): boolean => {
  const said = model.modelInfo["is_self_hosted"]
  if (typeof said === "boolean") return said
  const base = model.gatewayParams["api_base"]
  return (
    selfHosted.has(provider) ||
    (typeof base === "string" && URL.canParse(base) && privateHost.test(new URL(base).hostname))
  )
}

const providerIn = (model: RegisteredModel): string => {
  const upstream = model.gatewayParams["model"]
  return typeof upstream === "string" && upstream.includes("/") ? upstream.slice(0, upstream.indexOf("/")) : ""
}

const listed = (model: RegisteredModel, health: DeploymentHealth | undefined, priced: boolean) => {
  const provider = health?.provider ?? providerIn(model)
  const { lifecycle } = model.modelInfo
  return {
    ...shown(model),
    provider,
    health: health?.state ?? "unknown",
    response_time_ms: health?.responseTimeMs ?? null,
    last_checked_at:
      health?.lastCheckedAt === undefined || health.lastCheckedAt === null ? null : instantText(health.lastCheckedAt),
    lifecycle: typeof lifecycle === "string" ? lifecycle : "active",
    is_self_hosted: isSelfHosted(model, provider),
    priced
  }
}

const isGiven = (text: string | undefined): text is string => text !== undefined && text !== ""

export const ModelHandlers = HttpApiBuilder.group(
  Api,
  "model",
  Effect.fn(function* (handlers) {
    const registry = yield* ModelRegistry
    const router = yield* ProviderRouter
    return handlers.handleAll({
      new: Effect.fnUntraced(function* ({ payload }) {
        const model = yield* registry.create(
          {
            modelName: payload.model_name,
            gatewayParams: parametersOf(payload) ?? {},
            modelInfo: payload.model_info ?? {}
          },
          actorOf(yield* ManagementCaller)
        )
        return { model_id: model.id }
      }),
      update: Effect.fnUntraced(function* ({ payload }) {
        const gatewayParams = parametersOf(payload)
        yield* registry.update(payload.model_id, {
          ...(payload.model_name === undefined || payload.model_name === null ? {} : { modelName: payload.model_name }),
          ...(gatewayParams === undefined ? {} : { gatewayParams }),
          ...(payload.model_info === undefined || payload.model_info === null ? {} : { modelInfo: payload.model_info }),
          actor: actorOf(yield* ManagementCaller)
        })
        return { updated: true }
      }),
      delete: Effect.fnUntraced(function* ({ payload }) {
        yield* registry.remove(payload.model_id, actorOf(yield* ManagementCaller))
        return { deleted: true }
      }),
      info: ({ query }) =>
        Effect.map(
          registry.find({
            ...(isGiven(query.model_id) ? { id: query.model_id } : {}),
            ...(isGiven(query.model_name) ? { modelName: query.model_name } : {})
          }),
          shown
        ),
      list: () =>
        Effect.map(registry.list, (models) => {
          const health = new Map(router.health().map((one) => [one.deploymentId, one]))
          return {
            data: models.map((model) =>
              listed(model, health.get(model.id), router.find(model.modelName)?.price !== undefined)
            )
          }
        })
    })
  })
)
