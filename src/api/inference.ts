/** Chat completions, legacy completions, embeddings and the model list (model-api.md). */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema } from "effect/http-api"
import { Enveloped, ModelAccess, operation } from "#api/access.ts"
import { ChatCompletionRequest, CompletionRequest, EmbeddingRequest } from "#domain/requests.ts"

const Model = Schema.Struct({
  id: Schema.String,
  object: Schema.String,
  created: Schema.Int,
  owned_by: Schema.String
}).annotate({ identifier: "Model" })

const ModelList = Schema.Struct({ object: Schema.String, data: Schema.Array(Model) }).annotate({
  identifier: "ModelList"
})

const ChatCompletionResponse = Schema.Struct({
  id: Schema.String,
  object: Schema.String,
  created: Schema.Int,
  model: Schema.String,
  choices: Schema.Array(Schema.Unknown),
  usage: Schema.optionalKey(Schema.Unknown),
  system_fingerprint: Schema.optionalKey(Schema.NullOr(Schema.String))
}).annotate({ identifier: "ChatCompletionResponse" })

const EventStream = Schema.String.pipe(HttpApiSchema.asText({ contentType: "text/event-stream" }))

const EmbeddingResponse = Schema.Struct({
  object: Schema.String,
  data: Schema.Array(Schema.Unknown),
  model: Schema.String,
  usage: Schema.Unknown
}).annotate({ identifier: "EmbeddingResponse" })

const chat = { payload: ChatCompletionRequest, success: [ChatCompletionResponse, EventStream] } as const
const completion = { payload: CompletionRequest, success: [ChatCompletionResponse, EventStream] } as const
const embedding = { payload: EmbeddingRequest, success: EmbeddingResponse } as const
const byPath = { params: { model: Schema.String } } as const

const primary = operation("model", 200, 400, 401, 404, 429, 502)
const alias = operation("model", 200, 400, 401)

export class ModelListGroup extends HttpApiGroup.make("model_list")
  .add(
    HttpApiEndpoint.get("list", "/v1/models", { success: ModelList }).annotateMerge(operation("model", 200, 401)),
    HttpApiEndpoint.get("retrieve", "/v1/models/:model", { ...byPath, success: Model }).annotateMerge(
      operation("model", 200, 401, 404)
    )
  )
  .middleware(ModelAccess)
  .middleware(Enveloped) {}

export class InferenceGroup extends HttpApiGroup.make("inference")
  .add(
    HttpApiEndpoint.post("chat_completions", "/v1/chat/completions", chat).annotateMerge(primary),
    HttpApiEndpoint.post("chat_completions_alias", "/chat/completions", chat).annotateMerge(alias),
    HttpApiEndpoint.post("engine_chat_completions", "/engines/:model/chat/completions", {
      ...byPath,
      ...chat
    }).annotateMerge(alias),
    HttpApiEndpoint.post("deployment_chat_completions", "/openai/deployments/:model/chat/completions", {
      ...byPath,
      ...chat
    }).annotateMerge(alias),
    HttpApiEndpoint.post("completions", "/v1/completions", completion).annotateMerge(primary),
    HttpApiEndpoint.post("completions_alias", "/completions", completion).annotateMerge(alias),
    HttpApiEndpoint.post("embeddings", "/v1/embeddings", embedding).annotateMerge(primary),
    HttpApiEndpoint.post("embeddings_alias", "/embeddings", embedding).annotateMerge(alias)
  )
  .middleware(ModelAccess)
  .middleware(Enveloped) {}
