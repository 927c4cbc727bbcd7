/** The bodies of provider-native calls and of `agent/chat`, as far as the gateway relies on them. */
import { Schema } from "effect"

const nullable = <S extends Schema.Top>(schema: S) => Schema.optionalKey(Schema.NullOr(schema))
const modelName = Schema.NonEmptyString.check(Schema.isMaxLength(256))
const count = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 10_000_000 }))

const nativeMessage = Schema.Struct({
  role: Schema.NonEmptyString,
  content: Schema.Union([Schema.String, Schema.Array(Schema.Unknown)])
})

export const NativeMessagesRequest = Schema.Struct({
  model: modelName,
  max_tokens: count,
  messages: Schema.Array(nativeMessage).check(Schema.isMinLength(1)),
  system: Schema.optionalKey(Schema.Union([Schema.String, Schema.Array(Schema.Unknown)])),
  stream: nullable(Schema.Boolean)
}).annotate({ identifier: "NativeMessagesRequest" })

export const CountTokensRequest = Schema.Struct({ model: modelName, messages: Schema.Array(nativeMessage) }).annotate({
  identifier: "CountTokensRequest"
})

export const GenerateContentRequest = Schema.Struct({
  contents: Schema.Array(Schema.Unknown).check(Schema.isMinLength(1))
}).annotate({ identifier: "GenerateContentRequest" })

export const AgentChatRequest = Schema.Struct({
  model: modelName,
  messages: Schema.Array(
    Schema.Struct({
      role: Schema.NonEmptyString,
      content: Schema.optionalKey(Schema.NullOr(Schema.Union([Schema.String, Schema.Array(Schema.Unknown)])))
    })
  ).check(Schema.isMinLength(1)),
  tools: nullable(Schema.Array(Schema.Unknown)),
  tool_choice: Schema.optionalKey(Schema.Unknown)
}).annotate({ identifier: "AgentChatRequest" })
