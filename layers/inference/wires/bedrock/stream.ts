import { isJsonObject, type JsonObject } from "#domain/json.ts"
import type { Usage } from "#domain/usage.ts"
import { finishOf, usageOfConverse } from "#layers/inference/wires/bedrock/decode.ts"
import { problemOfException } from "#layers/inference/wires/bedrock/problems.ts"
import { mostCalls } from "#layers/inference/wires/chat/answer.ts"
import type { EventKind } from "#layers/inference/wires/chat/decoder.ts"
import type { ChatStream } from "#layers/inference/wires/chat/stream.ts"
import { type Frame, FrameSplitter } from "#layers/inference/wires/eventstream.ts"
import { malformedAnswer, streamCut } from "#layers/inference/wires/problems.ts"
import { objectOf, parseJson, stringOf } from "#layers/inference/wires/values.ts"
import type { StreamDecoder, UpstreamProblem } from "#services/inference/Wire.ts"

/** Text beyond this is not kept for handing back. */
const keptText = 8 * 1024 * 1024

interface OpenBlock {
  readonly call: number
  args: boolean
  thinking: string
  signature: string
}

/** The binary frames of ConverseStream as chat-completion chunks. */
export class ConverseDecoder implements StreamDecoder {
  readonly #out: ChatStream
  readonly #splitter = new FrameSplitter()
  #block: OpenBlock | undefined
  #usage: Usage | undefined
  events = 0
  ended = false
  problem: UpstreamProblem | undefined

  constructor(out: ChatStream) {
    this.#out = out
  }

  feed(chunk: Buffer): Buffer | undefined {
    if (this.ended || this.problem !== undefined) return undefined
    const fault = this.#splitter.push(chunk, (frame) => this.#frame(frame))
    if (fault !== undefined) this.problem ??= malformedAnswer(fault)
    return this.#out.take()
  }

  finish(): Buffer | undefined {
    if (this.ended || this.problem !== undefined) return undefined
    // Usage comes last and may be missing; the answer may not.
    if (this.#splitter.broken || !this.#out.finished) this.problem = streamCut
    else this.ended = true
    return this.#out.take()
  }

  usage(): Usage | undefined {
    return this.#usage
  }

  text(): string {
    return this.#out.text()
  }

  #frame({ headers, payload }: Frame): void {
    if (this.ended || this.problem !== undefined) return
    const type = headers.get(":message-type")
    const data = payload.length === 0 ? {} : parseJson(payload)
    if (!isJsonObject(data)) {
      this.problem = malformedAnswer("an event is not a JSON object")
      return
    }
    if (type === "exception" || type === "error") {
      const message = headers.get(":error-message")
      const name = headers.get(":exception-type") ?? headers.get(":error-code") ?? ""
      this.problem = problemOfException(name, message === undefined ? data : { message, ...data })
      return
    }
    const kind = this.#event(headers.get(":event-type"), data)
    if (typeof kind === "object") this.problem = kind
    else if (kind !== "nothing") this.events += 1
    if (kind === "end") this.ended = true
  }

  #event(type: string | undefined, data: JsonObject): EventKind {
    switch (type) {
      case "messageStart":
        return "progress"
      case "contentBlockStart":
        return this.#start(objectOf(objectOf(data["start"])["toolUse"]))
      case "contentBlockDelta":
        return this.#delta(objectOf(data["delta"]))
      case "contentBlockStop":
        this.#stop()
        return "progress"
      case "messageStop": {
        const finish = finishOf(data["stopReason"])
        if (typeof finish === "object") return finish
        if (!this.#out.finished) this.#out.finish(0, finish)
        return "progress"
      }
      case "metadata": {
        this.#usage = usageOfConverse(data["usage"])
        if (!this.#out.finished) return "progress"
        if (this.#usage !== undefined) this.#out.usage(this.#usage)
        return "end"
      }
      default:
        return "nothing"
    }
  }

  #start(use: JsonObject): EventKind {
    const id = stringOf(use["toolUseId"])
    const name = stringOf(use["name"])
    this.#block = { call: -1, args: false, thinking: "", signature: "" }
    if (id === undefined || name === undefined) return "progress"
    if (this.#out.calls(0) >= mostCalls) return malformedAnswer("it has too many tool calls")
    this.#block = { ...this.#block, call: this.#out.call(0, { id, name, arguments: "" }) }
    return "progress"
  }

  #delta(delta: JsonObject): EventKind {
    // Only blocks of tool calls announce themselves.
    const block = (this.#block ??= { call: -1, args: false, thinking: "", signature: "" })
    this.#out.content(0, stringOf(delta["text"]) ?? "")
    const reasoning = objectOf(delta["reasoningContent"])
    const thought = stringOf(reasoning["text"]) ?? ""
    if (block.thinking.length < keptText) block.thinking += thought
    this.#out.reasoning(0, thought)
    block.signature += stringOf(reasoning["signature"]) ?? ""
    const redacted = stringOf(reasoning["redactedContent"])
    if (redacted !== undefined) this.#out.thinking(0, { type: "redacted_thinking", data: redacted })
    const input = stringOf(objectOf(delta["toolUse"])["input"]) ?? ""
    if (input === "") return "progress"
    if (block.call === -1) return malformedAnswer("a delta belongs to no tool call")
    block.args = true
    this.#out.callArguments(0, block.call, input)
    return "progress"
  }

  #stop(): void {
    const block = this.#block
    this.#block = undefined
    if (block === undefined) return
    if (block.call !== -1 && !block.args) this.#out.callArguments(0, block.call, "{}")
    if (block.signature === "") return
    this.#out.thinking(0, { type: "thinking", thinking: block.thinking, signature: block.signature })
  }
}
