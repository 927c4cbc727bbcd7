import type { Json, JsonObject } from "#domain/json.ts"
import type { Usage } from "#domain/usage.ts"
import { finishOf, mergedUsage, usageOfAnthropic } from "#layers/inference/wires/anthropic/decode.ts"
import { mostCalls } from "#layers/inference/wires/chat/answer.ts"
import type { EventKind, StreamReader } from "#layers/inference/wires/chat/decoder.ts"
import type { ChatStream } from "#layers/inference/wires/chat/stream.ts"
import { unfinishedUsage } from "#layers/inference/wires/estimates.ts"
import type { NativeKind, NativeReader } from "#layers/inference/wires/native.ts"
import { malformedAnswer, problemOfFrame, streamCut } from "#layers/inference/wires/problems.ts"
import { countOf, objectOf, stringOf, writeJson } from "#layers/inference/wires/values.ts"
import type { UpstreamProblem } from "#services/inference/Wire.ts"

/** Text beyond this is not kept for estimating. */
const keptText = 8 * 1024 * 1024

/** What a stream has reported, and what it must have generated meanwhile. */
class StreamUsage {
  #reported: JsonObject = {}
  #known = false
  #complete = false

  started(usage: Json | undefined): void {
    this.#reported = mergedUsage(this.#reported, usage)
    this.#known = usageOfAnthropic(this.#reported) !== undefined
  }

  completed(usage: Json | undefined): void {
    this.started(usage)
    this.#complete = true
  }

  /** Output is reported only at the end; before, it is estimated from the text, and marked so. */
  read(text: string): Usage | undefined {
    const usage = this.#known ? usageOfAnthropic(this.#reported) : undefined
    return usage === undefined || this.#complete ? usage : unfinishedUsage(usage, text)
  }
}

interface OpenBlock {
  readonly type: string
  readonly call: number
  /** Of a tool call: whether its arguments have begun. */
  args: boolean
  thinking: string
  signature: string
}

/** The events of a Messages stream as chat-completion chunks. */
export class MessagesReader implements StreamReader {
  readonly #out: ChatStream
  readonly #usage = new StreamUsage()
  #block: OpenBlock | undefined
  #index: Json | undefined

  constructor(out: ChatStream) {
    this.#out = out
  }

  read(event: string | undefined, data: JsonObject): EventKind {
    switch (data["type"] ?? event) {
      case "message_start": {
        const message = objectOf(data["message"])
        const model = stringOf(message["model"])
        if (model !== undefined) this.#out.model(model)
        this.#usage.started(message["usage"])
        return "progress"
      }
      case "content_block_start":
        return this.#start(data)
      case "content_block_delta":
        return this.#delta(data)
      case "content_block_stop":
        this.#stop()
        return "progress"
      case "message_delta": {
        const reason = objectOf(data["delta"])["stop_reason"]
        this.#usage.completed(data["usage"])
        if (typeof reason === "string" && !this.#out.finished) this.#out.finish(0, finishOf(reason))
        return "progress"
      }
      case "message_stop":
        return this.#end()
      case "error":
        return problemOfFrame(data)
      default:
        return "nothing"
    }
  }

  close(): UpstreamProblem | undefined {
    if (!this.#out.finished) return streamCut
    this.#end()
    return undefined
  }

  usage(): Usage | undefined {
    return this.#usage.read(this.#out.text())
  }

  #end(): EventKind {
    if (!this.#out.finished) return streamCut
    const usage = this.usage()
    if (usage !== undefined) this.#out.usage(usage)
    return "end"
  }

  #start(data: JsonObject): EventKind {
    const block = objectOf(data["content_block"])
    const type = stringOf(block["type"]) ?? ""
    let call = -1
    if (type === "tool_use") {
      const id = stringOf(block["id"])
      const name = stringOf(block["name"])
      if (id === undefined || name === undefined) return malformedAnswer("a tool call cannot be read")
      if (this.#out.calls(0) >= mostCalls) return malformedAnswer("it has too many tool calls")
      const input = objectOf(block["input"])
      const begun = Object.keys(input).length === 0 ? "" : writeJson(input)
      if (begun === undefined) return malformedAnswer("it is nested too deeply")
      call = this.#out.call(0, { id, name, arguments: begun })
      this.#block = { type, call, args: begun !== "", thinking: "", signature: "" }
    } else {
      this.#block = { type, call, args: false, thinking: "", signature: stringOf(block["signature"]) ?? "" }
      if (type === "redacted_thinking") this.#out.thinking(0, block)
      if (type === "text") this.#out.content(0, stringOf(block["text"]) ?? "")
      if (type === "thinking") this.#think(stringOf(block["thinking"]) ?? "")
    }
    this.#index = data["index"]
    return "progress"
  }

  #delta(data: JsonObject): EventKind {
    const block = this.#block
    if (block === undefined || data["index"] !== this.#index) return malformedAnswer("a delta belongs to no block")
    const delta = objectOf(data["delta"])
    switch (delta["type"]) {
      case "text_delta":
        this.#out.content(0, stringOf(delta["text"]) ?? "")
        break
      case "thinking_delta":
        this.#think(stringOf(delta["thinking"]) ?? "")
        break
      case "signature_delta":
        block.signature += stringOf(delta["signature"]) ?? ""
        break
      case "input_json_delta": {
        const json = stringOf(delta["partial_json"]) ?? ""
        // Input of the provider's own tools is nobody's call.
        if (block.call === -1 || json === "") break
        block.args = true
        this.#out.callArguments(0, block.call, json)
        break
      }
      default:
    }
    return "progress"
  }

  #think(text: string): void {
    const block = this.#block
    if (block === undefined) return
    if (block.thinking.length < keptText) block.thinking += text
    this.#out.reasoning(0, text)
  }

  #stop(): void {
    const block = this.#block
    this.#block = undefined
    if (block === undefined) return
    // A call without arguments has an empty object of them: clients parse what they have gathered.
    if (block.call !== -1 && !block.args) this.#out.callArguments(0, block.call, "{}")
    if (block.type !== "thinking" || block.signature === "") return
    this.#out.thinking(0, { type: "thinking", thinking: block.thinking, signature: block.signature })
  }
}

/** Usage, text and end of a Messages stream that goes to the client untouched. */
export class NativeMessagesReader implements NativeReader {
  readonly #usage = new StreamUsage()
  readonly #failed: (frame: JsonObject) => UpstreamProblem
  #text = ""

  /** `failed` judges an error event. */
  constructor(failed: (frame: JsonObject) => UpstreamProblem) {
    this.#failed = failed
  }

  read(event: string | undefined, data: JsonObject): NativeKind {
    switch (data["type"] ?? event) {
      case "ping":
        return "keepalive"
      case "message_start":
        this.#usage.started(objectOf(data["message"])["usage"])
        return "prelude"
      case "content_block_start": {
        const block = objectOf(data["content_block"])
        this.#keep(stringOf(block["name"]) ?? stringOf(block["text"]) ?? "")
        return "content"
      }
      case "content_block_delta": {
        const delta = objectOf(data["delta"])
        this.#keep(stringOf(delta["text"] ?? delta["thinking"] ?? delta["partial_json"]) ?? "")
        return "content"
      }
      case "message_delta":
        // Some models report interim totals; only what is there counts.
        if (countOf(objectOf(data["usage"])["output_tokens"]) > 0) this.#usage.completed(data["usage"])
        return "content"
      case "message_stop":
        return "end"
      case "error":
        return this.#failed(data)
      default:
        return "content"
    }
  }

  close(): UpstreamProblem | undefined {
    return streamCut
  }

  usage(): Usage | undefined {
    return this.#usage.read(this.#text)
  }

  text(): string {
    return this.#text
  }

  #keep(text: string): void {
    if (this.#text.length < keptText) this.#text += text
  }
}
