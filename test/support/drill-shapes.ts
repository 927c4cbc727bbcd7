/** What the failure drills say on each wire: whole answers, streams, error frames, and what they cost. */
import { eventFrame, frame } from "#test/layers/inference/wires/frames.ts"
import { chatAnswer, streamPayloads, stubUsage } from "#test/support/openai-answers.ts"
import { anthropicEvents, anthropicUsage } from "#test/support/anthropic-answers.ts"

export interface Tokens {
  readonly input: number
  readonly output: number
}

export interface Shape {
  readonly name: "chat" | "anthropic" | "messages" | "bedrock"
  /** `gateway_params` of a deployment at a base. */
  readonly params: (base: string) => Readonly<Record<string, unknown>>
  /** Path of the gateway's operation. */
  readonly path: string
  readonly streamType: string
  readonly answer: string
  readonly events: ReadonlyArray<Buffer>
  /** How many of the events make the first half, and the text they say. */
  readonly half: number
  readonly halfText: string
  /** What all of them say. */
  readonly text: string
  /** What the upstream reports, and what it has reported of the prompt by half; undefined: nothing. */
  readonly usage: Tokens
  readonly halfInput: number | undefined
  readonly errorEvent: Buffer
  readonly brokenEvent: Buffer
  /** An event without content, which keeps the connection alive and means nothing. */
  readonly heartbeat: Buffer
  /** Ends a whole stream's text as the client sees it. */
  readonly ending: string
}

const sse = (data: string, event?: string): Buffer =>
  Buffer.from(`${event === undefined ? "" : `event: ${event}\n`}data: ${data}\n\n`)

const openaiTokens = { input: stubUsage.prompt_tokens, output: stubUsage.completion_tokens }

export const chat: Shape = {
  name: "chat",
  params: (base) => ({ model: "openai/upstream", api_base: `${base}/v1`, api_key: "sk-upstream" }),
  path: "/v1/chat/completions",
  streamType: "text/event-stream",
  answer: chatAnswer("upstream"),
  events: [
    ...streamPayloads("upstream", { legacy: false, chunks: 5, wide: true, usage: true }).map((data) => sse(data)),
    sse("[DONE]")
  ],
  half: 3,
  halfText: "Größe 東京 ",
  text: "Größe 東京 🚀 naïve Ελλάδα ",
  usage: openaiTokens,
  halfInput: undefined,
  errorEvent: sse(JSON.stringify({ error: { message: "The model broke.", type: "server_error", code: null } })),
  brokenEvent: sse('{"id":"chatcmpl-stub","choi'),
  heartbeat: Buffer.from(": keep-alive\n\n"),
  ending: "data: [DONE]\n\n"
}

const anthropicAnswer = JSON.stringify({
  id: "msg_stub",
  type: "message",
  role: "assistant",
  model: "upstream",
  content: [{ type: "text", text: "Hello from upstream." }],
  stop_reason: "end_turn",
  stop_sequence: null,
  usage: anthropicUsage
})

/** Chat, translated to Anthropic's messages. */
export const anthropic: Shape = {
  name: "anthropic",
  params: (base) => ({ model: "anthropic/upstream", api_base: base, api_key: "sk-upstream" }),
  path: "/v1/chat/completions",
  streamType: "text/event-stream",
  answer: anthropicAnswer,
  events: anthropicEvents("upstream", ["Größe in ", "東京 heute ", "again."]).map((text) => Buffer.from(text)),
  half: 5,
  halfText: "Größe in 東京 heute ",
  text: "Größe in 東京 heute again.",
  usage: { input: anthropicUsage.input_tokens, output: anthropicUsage.output_tokens },
  halfInput: anthropicUsage.input_tokens,
  errorEvent: sse(
    JSON.stringify({ type: "error", error: { type: "api_error", message: "The model broke." } }),
    "error"
  ),
  brokenEvent: sse('{"type":"content_block_del', "content_block_delta"),
  heartbeat: sse('{"type":"ping"}', "ping"),
  ending: "data: [DONE]\n\n"
}

/** Anthropic's messages as they are. */
export const messages: Shape = { ...anthropic, name: "messages", path: "/v1/messages", ending: '"message_stop"}\n\n' }

const converse = { inputTokens: 14, outputTokens: 6, totalTokens: 20 }
const delta = (text: string) => eventFrame("contentBlockDelta", { contentBlockIndex: 0, delta: { text } })

/** Chat, translated to Bedrock's Converse. */
export const bedrock: Shape = {
  name: "bedrock",
  params: (base) => ({
    model: "bedrock/upstream",
    api_base: base,
    aws_region_name: "us-east-1",
    aws_access_key_id: "AKIAUPSTREAM00000001",
    aws_secret_access_key: "upstream-secret"
  }),
  path: "/v1/chat/completions",
  streamType: "application/vnd.amazon.eventstream",
  answer: JSON.stringify({
    output: { message: { role: "assistant", content: [{ text: "Hello from upstream." }] } },
    stopReason: "end_turn",
    usage: converse
  }),
  events: [
    eventFrame("messageStart", { role: "assistant" }),
    delta("Größe in "),
    delta("東京 heute "),
    delta("again."),
    eventFrame("contentBlockStop", { contentBlockIndex: 0 }),
    eventFrame("messageStop", { stopReason: "end_turn" }),
    eventFrame("metadata", { usage: converse, metrics: { latencyMs: 5 } })
  ],
  half: 3,
  halfText: "Größe in 東京 heute ",
  text: "Größe in 東京 heute again.",
  usage: { input: converse.inputTokens, output: converse.outputTokens },
  halfInput: undefined,
  errorEvent: frame(
    {
      ":exception-type": "modelStreamErrorException",
      ":content-type": "application/json",
      ":message-type": "exception"
    },
    { message: "The model broke." }
  ),
  brokenEvent: Buffer.concat([delta("x").subarray(0, -1), Buffer.from([0])]),
  heartbeat: eventFrame("ping", {}),
  ending: "data: [DONE]\n\n"
}
