/** What Anthropic's Messages API answers, after its public reference. */
import { answerEvents, answerJson, type NativeAnswer } from "#test/support/NativeStub.ts"

export const anthropicUsage = { input_tokens: 12, output_tokens: 9 }

const message = (model: unknown, content: ReadonlyArray<unknown>, stop: string | null) => ({
  id: "msg_stub",
  type: "message",
  role: "assistant",
  model,
  content,
  stop_reason: stop,
  stop_sequence: null,
  usage: anthropicUsage
})

const event = (data: { readonly type: string; readonly [field: string]: unknown }): string =>
  `event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`

/** The events of a text said in the given pieces, with a ping and a field that no client knows yet. */
export const anthropicEvents = (model: unknown, pieces: ReadonlyArray<string>): ReadonlyArray<string> => [
  event({
    type: "message_start",
    message: { ...message(model, [], null), usage: { input_tokens: 12, output_tokens: 1 } },
    from_tomorrow: true
  }),
  event({ type: "content_block_start", index: 0, content_block: { type: "text", text: "" } }),
  event({ type: "ping" }),
  ...pieces.map((text) => event({ type: "content_block_delta", index: 0, delta: { type: "text_delta", text } })),
  event({ type: "content_block_stop", index: 0 }),
  event({
    type: "message_delta",
    delta: { stop_reason: "end_turn", stop_sequence: null },
    usage: { output_tokens: 9 }
  }),
  event({ type: "message_stop" })
]

export const anthropicError = (type: string, text: string) => ({ type: "error", error: { type, message: text } })

export const anthropicStub: NativeAnswer = (request, response) => {
  const { model, stream, tools } = request.json
  if (request.path.endsWith("/count_tokens")) return answerJson(response, { input_tokens: 42 })
  if (stream === true) return answerEvents(response, anthropicEvents(model, ["Hello ", "from ", "upstream."]))
  const content = Array.isArray(tools)
    ? [{ type: "tool_use", id: "toolu_1", name: "get_weather", input: { city: "Paris" } }]
    : [{ type: "text", text: "Hello from upstream." }]
  answerJson(response, message(model, content, Array.isArray(tools) ? "tool_use" : "end_turn"))
}
