/**
 * The bodies of model calls (model-api.md, "ChatCompletionRequest" and its neighbours). Only what the gateway itself
 * relies on is constrained: everything else is the upstream's to judge and is forwarded as it came.
 */
import { Schema } from "effect"

const nullable = <S extends Schema.Top>(schema: S) => Schema.optionalKey(Schema.NullOr(schema))

const count = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 10_000_000 }))
const choices = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 128 }))

/** The longest name of a model that is looked up at all. */
const modelName = Schema.NonEmptyString.check(Schema.isMaxLength(256))

const message = Schema.Struct({
  role: Schema.NonEmptyString,
  content: Schema.optionalKey(Schema.NullOr(Schema.Union([Schema.String, Schema.Array(Schema.Unknown)])))
})

export const ChatCompletionRequest = Schema.Struct({
  model: Schema.optionalKey(modelName),
  messages: Schema.Array(message).check(Schema.isMinLength(1)),
  temperature: nullable(Schema.Finite),
  top_p: nullable(Schema.Finite),
  n: nullable(choices),
  stream: nullable(Schema.Boolean),
  stream_options: nullable(Schema.Struct({ include_usage: nullable(Schema.Boolean) })),
  stop: Schema.optionalKey(Schema.Unknown),
  max_tokens: nullable(count),
  max_completion_tokens: nullable(count),
  presence_penalty: nullable(Schema.Finite),
  frequency_penalty: nullable(Schema.Finite),
  logit_bias: Schema.optionalKey(Schema.Unknown),
  logprobs: nullable(Schema.Boolean),
  top_logprobs: nullable(Schema.Int),
  user: nullable(Schema.String),
  seed: nullable(Schema.Int),
  tools: nullable(Schema.Array(Schema.Unknown)),
  tool_choice: Schema.optionalKey(Schema.Unknown),
  parallel_tool_calls: nullable(Schema.Boolean),
  response_format: Schema.optionalKey(Schema.Unknown)
}).annotate({ identifier: "ChatCompletionRequest" })

export const CompletionRequest = Schema.Struct({
  model: Schema.optionalKey(modelName),
  prompt: Schema.String,
  max_tokens: nullable(count),
  temperature: nullable(Schema.Finite),
  stream: nullable(Schema.Boolean),
  stream_options: nullable(Schema.Struct({ include_usage: nullable(Schema.Boolean) })),
  user: nullable(Schema.String)
}).annotate({ identifier: "CompletionRequest" })

export const EmbeddingRequest = Schema.Struct({
  model: Schema.optionalKey(modelName),
  input: Schema.Union([
    Schema.String,
    Schema.Array(Schema.String).check(Schema.isMinLength(1)),
    Schema.Array(Schema.Int).check(Schema.isMinLength(1)),
    Schema.Array(Schema.Array(Schema.Int)).check(Schema.isMinLength(1))
  ]),
  encoding_format: nullable(Schema.Literals(["float", "base64"])),
  dimensions: nullable(count),
  user: nullable(Schema.String)
}).annotate({ identifier: "EmbeddingRequest" })
