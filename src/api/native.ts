/** Provider-native shapes (model-api.md): Anthropic's messages and Google's generateContent. */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema } from "effect/http-api"
import { Enveloped, ModelAccess, operation } from "#api/access.ts"
import { CountTokensRequest, GenerateContentRequest, NativeMessagesRequest } from "#domain/native-requests.ts"

const NativeMessagesResponse = Schema.Struct({
  id: Schema.String,
  type: Schema.String,
  role: Schema.String,
  content: Schema.Array(Schema.Unknown),
  model: Schema.String,
  stop_reason: Schema.NullOr(Schema.String),
  stop_sequence: Schema.NullOr(Schema.String)
}).annotate({ identifier: "NativeMessagesResponse" })

const GenerateContentResponse = Schema.Struct({
  id: Schema.String,
  object: Schema.String,
  created: Schema.Int,
  model: Schema.String,
  choices: Schema.Array(Schema.Unknown),
  usage: Schema.optionalKey(Schema.Unknown),
  candidates: Schema.Array(Schema.Unknown),
  usageMetadata: Schema.optionalKey(Schema.Unknown)
}).annotate({ identifier: "GenerateContentResponse" })

const EventStream = Schema.String.pipe(HttpApiSchema.asText({ contentType: "text/event-stream" }))

/** Required, but `anthropic-version` stands for it: the handler checks. */
const versioned = { headers: { "provider-version": Schema.optionalKey(Schema.String) } } as const
const byPath = { params: { model: Schema.String }, payload: GenerateContentRequest } as const
const codes = operation("model", 200, 400, 401, 404, 502)

export class NativeGroup extends HttpApiGroup.make("native")
  .add(
    HttpApiEndpoint.post("messages", "/v1/messages", {
      ...versioned,
      payload: NativeMessagesRequest,
      success: [NativeMessagesResponse, EventStream]
    }).annotateMerge(codes),
    HttpApiEndpoint.post("count_tokens", "/v1/messages/count_tokens", {
      ...versioned,
      payload: CountTokensRequest,
      success: Schema.Record(Schema.String, Schema.Unknown)
    }).annotateMerge(codes),
    HttpApiEndpoint.post("generate_content", "/v1beta/models/:model:generateContent", {
      ...byPath,
      success: GenerateContentResponse
    }).annotateMerge(codes),
    HttpApiEndpoint.post("stream_generate_content", "/v1beta/models/:model:streamGenerateContent", {
      ...byPath,
      success: EventStream
    }).annotateMerge(codes)
  )
  .middleware(ModelAccess)
  .middleware(Enveloped) {}
