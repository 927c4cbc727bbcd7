/** The model list of a key: the registry, cut down to the key's allowlist (model-api.md, "Models"). */
import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { ModelCaller } from "#api/access.ts"
import { Api } from "#api/Api.ts"
import { modelNotFound } from "#domain/errors.ts"
import { type RegisteredModel, ModelRegistry } from "#services/models/ModelRegistry.ts"

const providerOf = (model: RegisteredModel): string => {
  const upstream = model.gatewayParams["model"]
  return typeof upstream === "string" && upstream.includes("/") ? upstream.slice(0, upstream.indexOf("/")) : "gateway"
}

/** A public name as official clients list it; its oldest row dates it. */
export const listed = (rows: ReadonlyArray<RegisteredModel>) => {
  const oldest = rows.reduce((first, row) => (row.createdAt < first.createdAt ? row : first))
  return {
    id: oldest.modelName,
    object: "model",
    created: Math.floor(oldest.createdAt / 1000),
    owned_by: providerOf(oldest)
  }
}

export const ModelListHandlers = HttpApiBuilder.group(
  Api,
  "model_list",
  Effect.fn(function* (handlers) {
    const registry = yield* ModelRegistry

    const visible = Effect.map(ModelCaller, (caller) => {
      const allowed = caller._tag === "ApiKey" ? caller.key.models : undefined
      const groups = Map.groupBy(registry.snapshot(), (row) => row.modelName)
      return [...groups.entries()]
        .filter(([name]) => allowed === undefined || allowed.has(name))
        .map(([, rows]) => listed(rows))
    })

    return handlers.handleAll({
      list: () => Effect.map(visible, (data) => ({ object: "list", data })),
      retrieve: ({ params }) =>
        Effect.flatMap(visible, (models) => {
          const model = models.find(({ id }) => id === params.model)
          return model === undefined ? Effect.fail(modelNotFound(params.model)) : Effect.succeed(model)
        })
    })
  })
)
