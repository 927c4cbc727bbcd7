/** What the stub upstream says: the documented OpenAI shapes, with fixed ids, times and usage so that tests can compare. */

/** The usage every answer of the stub reports. */
export const stubUsage = {
  prompt_tokens: 420,
  completion_tokens: 60,
  total_tokens: 480,
  prompt_tokens_details: { cached_tokens: 0 },
  completion_tokens_details: { reasoning_tokens: 0 }
} as const

/** The text of every answer that is not streamed. */
export const stubText =
  "A gateway stands between callers and models: it knows who calls, what the call may cost, and what became of it."

const created = 1_750_000_000
const words = ["A ", "gateway ", "stands ", "between ", "callers ", "and ", "models ", "today. "]
const accented = ["Größe ", "東京 ", "🚀 ", "naïve ", "Ελλάδα "]

/** The content of the stream's `index`-th chunk; `wide` takes words with characters of two to four bytes. */
export const streamWord = (index: number, wide: boolean): string => {
  const list = wide ? accented : words
  return list[index % list.length] ?? ""
}

/** A whole chat completion, about 500 bytes. */
export const chatAnswer = (model: string): string =>
  JSON.stringify({
    id: "chatcmpl-stub",
    object: "chat.completion",
    created,
    model,
    choices: [
      {
        index: 0,
        message: { role: "assistant", content: stubText, refusal: null },
        logprobs: null,
        finish_reason: "stop"
      }
    ],
    usage: stubUsage,
    system_fingerprint: "fp_stub"
  })

/** A whole legacy completion. */
export const completionAnswer = (model: string): string =>
  JSON.stringify({
    id: "cmpl-stub",
    object: "text_completion",
    created,
    model,
    choices: [{ index: 0, text: stubText, logprobs: null, finish_reason: "stop" }],
    usage: stubUsage
  })

export interface EventOptions {
  readonly legacy: boolean
  readonly chunks: number
  readonly wide: boolean
  readonly usage: boolean
}

/** The JSON payloads of a stream in order: role, `chunks` pieces of content, the finish, and the usage if wanted. */
export const streamPayloads = (model: string, options: EventOptions): ReadonlyArray<string> => {
  const base = options.legacy
    ? { id: "cmpl-stub", object: "text_completion", created, model }
    : { id: "chatcmpl-stub", object: "chat.completion.chunk", created, model, system_fingerprint: "fp_stub" }
  const event = (delta: object, text: string, finish: string | null) => {
    const choice = options.legacy
      ? { index: 0, text, finish_reason: finish }
      : { index: 0, delta, finish_reason: finish }
    return JSON.stringify({ ...base, choices: [choice], ...(options.usage ? { usage: null } : {}) })
  }
  const payloads = options.legacy ? [] : [event({ role: "assistant", content: "" }, "", null)]
  for (let index = 0; index < options.chunks; index += 1) {
    const word = streamWord(index, options.wide)
    payloads.push(event({ content: word }, word, null))
  }
  payloads.push(event({}, "", "stop"))
  if (options.usage) payloads.push(JSON.stringify({ ...base, choices: [], usage: stubUsage }))
  return payloads
}

/** One vector of 8 numbers an input, as floats or, when asked, as base64 of 32-bit floats. */
export const embeddingsAnswer = (model: string, input: unknown, format: unknown): string => {
  const count = Array.isArray(input) && typeof input[0] !== "number" ? input.length : 1
  const data = Array.from({ length: count }, (_, index) => {
    const vector = Array.from({ length: 8 }, (_, place) => (place === index % 8 ? 1 : 0.125))
    const embedding = format === "base64" ? Buffer.from(Float32Array.from(vector).buffer).toString("base64") : vector
    return { object: "embedding", index, embedding }
  })
  return JSON.stringify({ object: "list", data, model, usage: { prompt_tokens: 7 * count, total_tokens: 7 * count } })
}

/** The stub's model list. */
export const modelsAnswer = (): string =>
  JSON.stringify({
    object: "list",
    data: ["bench", "stub"].map((id) => ({ id, object: "model", created, owned_by: "stub" }))
  })

/** OpenAI's error envelope for a status. */
export const errorAnswer = (status: number): string =>
  JSON.stringify({
    error: {
      message: `The stub was asked to answer ${status}.`,
      type: status === 429 ? "rate_limit_error" : status >= 500 ? "server_error" : "invalid_request_error",
      param: null,
      code: status === 429 ? "rate_limit_exceeded" : null
    }
  })
