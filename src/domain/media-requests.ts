/**
 * The bodies of image, audio, moderation and rerank calls (model-api.md). Only what the gateway relies on is constrained;
 * everything else is the upstream's to judge.
 */
import { Schema } from "effect"

const nullable = <S extends Schema.Top>(schema: S) => Schema.optionalKey(Schema.NullOr(schema))
const modelName = Schema.NonEmptyString.check(Schema.isMaxLength(256))
const images = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 128 }))

export const ImageGenerationRequest = Schema.Struct({
  model: Schema.optionalKey(modelName),
  prompt: Schema.NonEmptyString,
  n: nullable(images),
  size: nullable(Schema.String),
  quality: nullable(Schema.String),
  style: nullable(Schema.String),
  response_format: nullable(Schema.String),
  user: nullable(Schema.String)
}).annotate({ identifier: "ImageGenerationRequest" })

export const SpeechRequest = Schema.Struct({
  model: Schema.optionalKey(modelName),
  input: Schema.NonEmptyString,
  voice: Schema.optionalKey(Schema.Unknown),
  response_format: nullable(Schema.Literals(["mp3", "opus", "aac", "flac", "wav", "pcm"])),
  speed: nullable(Schema.Finite.check(Schema.isBetween({ minimum: 0.25, maximum: 4 })))
}).annotate({ identifier: "SpeechRequest" })

export const ModerationRequest = Schema.Struct({
  model: Schema.optionalKey(modelName),
  input: Schema.Union([Schema.String, Schema.Array(Schema.Unknown).check(Schema.isMinLength(1))])
}).annotate({ identifier: "ModerationRequest" })

export const RerankRequest = Schema.Struct({
  model: Schema.optionalKey(modelName),
  query: Schema.String,
  documents: Schema.Array(Schema.Unknown).check(Schema.isMinLength(1)),
  top_n: nullable(Schema.Int.check(Schema.isGreaterThanOrEqualTo(1)))
}).annotate({ identifier: "RerankRequest" })

/** The fields of a form; its file is the `file` part. */
export const TranscriptionRequest = Schema.Struct({
  model: Schema.optionalKey(modelName),
  file: Schema.String,
  language: Schema.optionalKey(Schema.String),
  prompt: Schema.optionalKey(Schema.String),
  response_format: Schema.optionalKey(Schema.String),
  temperature: Schema.optionalKey(Schema.String)
}).annotate({ identifier: "TranscriptionRequest" })
