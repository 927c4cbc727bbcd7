import { isJsonObject, type JsonObject } from "#domain/json.ts"
import type { ProviderPreset } from "#domain/providers/presets.ts"
import { chatAnswer, chatChunks, sandboxChat } from "#layers/inference/sandbox/chat.ts"
import { embedAnswer } from "#layers/inference/sandbox/embed.ts"
import { moderationAnswer } from "#layers/inference/sandbox/moderation.ts"
import { imagesAnswer } from "#layers/inference/sandbox/image.ts"
import { rerankAnswer } from "#layers/inference/sandbox/rerank.ts"
import { spoken, transcriptionOf } from "#layers/inference/sandbox/speech.ts"
import { type Form, readForm } from "#layers/inference/sandbox/form.ts"
import { sseEvent } from "#layers/inference/sse.ts"
import type { TransportControl, TransportReceiver, TransportShape } from "#services/inference/Transport.ts"
import type { StreamedBody, WireRequest } from "#services/inference/Wire.ts"

/** The provider of `sandbox/…` models: OpenAI-shaped, in this process, without network or key. */
export const sandboxPreset: ProviderPreset = {
  name: "sandbox",
  aliases: [],
  apiBase: "http://sandbox.invalid",
  wire: "openai",
  apiKeyHeader: null,
  keyVariables: [],
  baseVariables: [],
  streamUsage: "ask"
}

/** What an upstream would send: one body, or a series of events. */
interface Answer {
  readonly status: number
  readonly contentType: string
  readonly parts: Iterable<Buffer>
}

const json = (body: JsonObject, status = 200): Answer => ({
  status,
  contentType: "application/json",
  parts: [Buffer.from(JSON.stringify(body))]
})

const refusal = (param: string, why: string): Answer =>
  json({ error: { message: `'${param}' ${why}.`, type: "invalid_request_error", code: "invalid_value", param } }, 400)

/** What an operation answers: a JSON object, or which field it refuses and why. */
export type Answered = JsonObject | { readonly param: string; readonly why: string }

function* events(chunks: Iterable<JsonObject>): Generator<Buffer, void> {
  for (const chunk of chunks) yield Buffer.from(sseEvent(JSON.stringify(chunk)))
  yield Buffer.from(sseEvent("[DONE]"))
}

/** All but `created`, in Unix seconds, is the same for the same request. */
type Operation = (model: string, body: JsonObject, created: number, form: Form | undefined) => Answer

const chat: Operation = (model, body, created) => {
  if (!Array.isArray(body["messages"]) || body["messages"].length === 0) {
    return refusal("messages", "must be a list of at least one message")
  }
  const answer = sandboxChat(body)
  if (body["stream"] !== true) return json(chatAnswer(model, answer, created))
  const options = body["stream_options"]
  const usage = isJsonObject(options) && options["include_usage"] === true
  return { status: 200, contentType: "text/event-stream", parts: events(chatChunks(model, answer, created, usage)) }
}

const whole = (answer: Answered): Answer =>
  "why" in answer && typeof answer["why"] === "string" ? refusal(String(answer["param"]), answer["why"]) : json(answer)

const speech: Operation = (_model, body) => {
  const answer = spoken(body)
  return Buffer.isBuffer(answer) ? { status: 200, contentType: "audio/wav", parts: [answer] } : whole(answer)
}

const transcription: Operation = (_model, _body, _created, form) => {
  const file = form?.files.find((one) => one.field === "file")
  if (file === undefined) return refusal("file", "must be an audio file")
  const answer = transcriptionOf(file, form?.fields["response_format"])
  return typeof answer === "string"
    ? { status: 200, contentType: "text/plain; charset=utf-8", parts: [Buffer.from(answer)] }
    : json(answer)
}

/** What each path answers, and which of the sandbox's models lives there. */
const routes: Readonly<Record<string, readonly [model: string, answer: Operation]>> = {
  "/chat/completions": ["chat", chat],
  "/embeddings": ["embed", (model, body) => whole(embedAnswer(model, body) as Answered)],
  "/rerank": ["rerank", (model, body) => whole(rerankAnswer(model, body))],
  "/moderations": ["moderation", (model, body) => whole(moderationAnswer(model, body))],
  "/images/generations": ["image", (_model, body, created) => whole(imagesAnswer(body, created))],
  "/images/edits": ["image", (_model, body, created) => whole(imagesAnswer(body, created))],
  "/audio/speech": ["speech", speech],
  "/audio/transcriptions": ["transcribe", transcription]
}

const answerTo = (path: string, body: JsonObject, created: number, form: Form | undefined): Answer => {
  const route = routes[path]
  if (route === undefined) return refusal("model", "has no such operation in the sandbox")
  const model = String(body["model"])
  if (model !== route[0]) {
    const message = `The sandbox has no model '${model.slice(0, 100)}' for this operation; it has '${route[0]}'.`
    return json({ error: { message, type: "invalid_request_error", code: "model_not_found", param: "model" } }, 404)
  }
  return route[1](`sandbox/${model}`, body, created, form)
}

const answerToText = (path: string, text: string, created: number): Answer => {
  const parsed: unknown = JSON.parse(text)
  return isJsonObject(parsed) ? answerTo(path, parsed, created, undefined) : refusal("body", "must be a JSON object")
}

/** Sends an answer's parts, one a turn of the event loop, as a network would. */
class Delivery implements TransportControl {
  readonly #receiver: TransportReceiver
  readonly #parts: Iterator<Buffer>
  readonly #answer: Answer
  #begun = false
  #paused = false
  #scheduled = false
  #done = false

  constructor(answer: Answer, receiver: TransportReceiver) {
    this.#answer = answer
    this.#receiver = receiver
    this.#parts = answer.parts[Symbol.iterator]()
    this.#schedule()
  }

  pause(): void {
    this.#paused = true
  }

  resume(): void {
    this.#paused = false
    this.#schedule()
  }

  abort(): void {
    this.#done = true
  }

  #schedule(): void {
    if (this.#scheduled || this.#done) return
    this.#scheduled = true
    setImmediate(() => {
      this.#scheduled = false
      this.#step()
    })
  }

  #step(): void {
    if (this.#done || this.#paused) return
    if (!this.#begun) {
      this.#begun = true
      this.#receiver.head(this.#answer.status, { "content-type": this.#answer.contentType })
      if (this.#done || this.#paused) return
    }
    const next = this.#parts.next()
    if (next.done === true) {
      this.#done = true
      this.#receiver.end()
      return
    }
    this.#receiver.data(next.value)
    if (!this.#paused) this.#schedule()
  }
}

/** A form is read to its end before it is answered; its files are not kept. */
class Reception implements TransportControl {
  #delivery: Delivery | undefined
  #aborted = false
  #paused = false
  readonly #stop: () => void

  constructor(request: WireRequest, upload: StreamedBody, created: number, receiver: TransportReceiver) {
    this.#stop = readForm(upload, request.headers["content-type"] ?? "", (form) => {
      if (this.#aborted) return
      if (form === undefined) return receiver.failed({ kind: "broken", message: "its form cannot be read" })
      this.#delivery = new Delivery(answerTo(request.path, form.fields, created, form), receiver)
      if (this.#paused) this.#delivery.pause()
    })
  }

  pause(): void {
    this.#paused = true
    this.#delivery?.pause()
  }

  resume(): void {
    this.#paused = false
    this.#delivery?.resume()
  }

  abort(): void {
    this.#aborted = true
    this.#stop()
    this.#delivery?.abort()
  }
}

/**
 * The sandbox as a transport: what the OpenAI-compatible wire sends is answered here (decisions.md, section 7.6). `now`
 * is in Unix milliseconds and dates the answers.
 */
export const sandboxTransport = (now: () => number): TransportShape => ({
  send: (_origin, request, receiver) => {
    const created = Math.floor(now() / 1000)
    return request.upload === undefined
      ? new Delivery(answerToText(request.path, request.body.toString(), created), receiver)
      : new Reception(request, request.upload, created, receiver)
  }
})
