/** Images, audio, moderation, rerank (model-api.md). */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema } from "effect/http-api"
import { Enveloped, ModelAccess, operation } from "#api/access.ts"
import {
  ImageGenerationRequest,
  ModerationRequest,
  RerankRequest,
  SpeechRequest,
  TranscriptionRequest
} from "#domain/media-requests.ts"

const ImageGenerationResponse = Schema.Struct({
  created: Schema.optionalKey(Schema.Int),
  data: Schema.Array(Schema.Unknown)
}).annotate({ identifier: "ImageGenerationResponse" })

const AudioTranscriptionResponse = Schema.Struct({
  text: Schema.String,
  language: Schema.optionalKey(Schema.String),
  duration: Schema.optionalKey(Schema.Finite),
  segments: Schema.optionalKey(Schema.Array(Schema.Unknown)),
  usage: Schema.optionalKey(Schema.Unknown)
}).annotate({ identifier: "AudioTranscriptionResponse" })

const ModerationResponse = Schema.Struct({
  id: Schema.optionalKey(Schema.String),
  model: Schema.optionalKey(Schema.String),
  results: Schema.Array(Schema.Unknown)
}).annotate({ identifier: "ModerationResponse" })

const RerankResponse = Schema.Struct({
  results: Schema.Array(Schema.Unknown),
  meta: Schema.optionalKey(Schema.Unknown)
}).annotate({ identifier: "RerankResponse" })

const Audio = Schema.Uint8Array.pipe(HttpApiSchema.asUint8Array({ contentType: "audio/mpeg" }))

const images = { payload: ImageGenerationRequest, success: ImageGenerationResponse } as const
const moderation = { payload: ModerationRequest, success: ModerationResponse } as const
const codes = operation("model", 200, 400, 401, 502)

export class MediaGroup extends HttpApiGroup.make("media")
  .add(
    HttpApiEndpoint.post("images", "/v1/images/generations", images).annotateMerge(codes),
    HttpApiEndpoint.post("image_edits", "/v1/images/edits", images).annotateMerge(codes),
    HttpApiEndpoint.post("speech", "/v1/audio/speech", { payload: SpeechRequest, success: Audio }).annotateMerge(
      operation("model", 200, 400, 401, 404, 502)
    ),
    HttpApiEndpoint.post("transcriptions", "/v1/audio/transcriptions", {
      payload: TranscriptionRequest.pipe(HttpApiSchema.asMultipart()),
      success: AudioTranscriptionResponse
    }).annotateMerge(codes),
    HttpApiEndpoint.post("moderations", "/v1/moderations", moderation).annotateMerge(codes),
    HttpApiEndpoint.post("moderations_alias", "/moderations", moderation).annotateMerge(
      operation("model", 200, 400, 401)
    ),
    HttpApiEndpoint.post("rerank", "/v1/rerank", { payload: RerankRequest, success: RerankResponse }).annotateMerge(
      codes
    )
  )
  .middleware(ModelAccess)
  .middleware(Enveloped) {}
