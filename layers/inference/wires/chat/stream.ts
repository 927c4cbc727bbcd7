import type { JsonObject } from "#domain/json.ts"
import type { Usage } from "#domain/usage.ts"
import {
  callObject,
  type CalledTool,
  type ChatHead,
  type FinishReason,
  usageObject
} from "#layers/inference/wires/chat/answer.ts"
import { jsonToolName } from "#layers/inference/wires/chat/fields.ts"

/** Text beyond this is not kept for estimating. */
const keptText = 8 * 1024 * 1024

interface ChoiceState {
  begun: boolean
  calls: number
  /** Calls whose arguments are the content, by their index. */
  disguised: Set<number>
}

/**
 * Writes chat-completion chunks as SSE. A choice begins with its role only when there is something to say, so that a
 * stream that fails before its first content can still be tried elsewhere.
 */
export class ChatStream {
  readonly #head: ChatHead
  readonly #wantsUsage: boolean
  readonly #choices: Array<ChoiceState> = []
  #open: string
  #out = ""
  #text = ""
  /** Whether a choice has got its finish reason. */
  finished = false

  constructor(head: ChatHead, wantsUsage: boolean) {
    this.#head = head
    this.#wantsUsage = wantsUsage
    this.#open = this.#opening(head.model)
  }

  /** What the upstream calls the model, when it says so before its first content. */
  model(name: string): void {
    this.#open = this.#opening(name)
  }

  content(choice: number, text: string): void {
    if (text === "") return
    this.#keep(text)
    this.#delta(choice, { content: text })
  }

  reasoning(choice: number, text: string): void {
    if (text === "") return
    this.#keep(text)
    this.#delta(choice, { reasoning_content: text })
  }

  /** A whole block of signed thinking, for clients that hand it back. */
  thinking(choice: number, block: JsonObject): void {
    this.#delta(choice, { thinking_blocks: [block] })
  }

  /** Begins a tool call, with what is known of its arguments, and tells its index. */
  call(choice: number, call: CalledTool): number {
    const state = this.#state(choice)
    const index = state.calls
    state.calls += 1
    if (this.#head.jsonTool && call.name === jsonToolName) {
      state.disguised.add(index)
      this.content(choice, call.arguments)
      return index
    }
    this.#keep(call.name + call.arguments)
    this.#delta(choice, { tool_calls: [{ index, ...callObject(call) }] })
    return index
  }

  callArguments(choice: number, index: number, text: string): void {
    if (text === "") return
    if (this.#state(choice).disguised.has(index)) return this.content(choice, text)
    this.#keep(text)
    this.#delta(choice, { tool_calls: [{ index, function: { arguments: text } }] })
  }

  calls(choice: number): number {
    return this.#state(choice).calls
  }

  finish(choice: number, reason: FinishReason): void {
    const state = this.#state(choice)
    const disguised = reason === "tool_calls" && state.disguised.size === state.calls
    this.finished = true
    this.#begin(choice)
    this.#write(choice, "{}", `"${disguised ? "stop" : reason}"`)
  }

  /** The usage event, if the client asked for it. */
  usage(usage: Usage): void {
    if (!this.#wantsUsage) return
    this.#out += `${this.#open}],"usage":${JSON.stringify(usageObject(usage))}}\n\n`
  }

  /** What was written since the last time. */
  take(): Buffer | undefined {
    if (this.#out === "") return undefined
    const bytes = Buffer.from(this.#out)
    this.#out = ""
    return bytes
  }

  /** Everything generated so far. */
  text(): string {
    return this.#text
  }

  #opening(model: string): string {
    const { created, id } = this.#head
    const head = JSON.stringify({ id, object: "chat.completion.chunk", created, model })
    return `data: ${head.slice(0, -1)},"choices":[`
  }

  #state(choice: number): ChoiceState {
    return (this.#choices[choice] ??= { begun: false, calls: 0, disguised: new Set() })
  }

  #begin(choice: number): void {
    const state = this.#state(choice)
    if (state.begun) return
    state.begun = true
    this.#write(choice, '{"role":"assistant","content":""}', "null")
  }

  #delta(choice: number, delta: JsonObject): void {
    this.#begin(choice)
    this.#write(choice, JSON.stringify(delta), "null")
  }

  #write(choice: number, delta: string, finish: string): void {
    const usage = this.#wantsUsage ? ',"usage":null' : ""
    this.#out += `${this.#open}{"index":${choice},"delta":${delta},"logprobs":null,"finish_reason":${finish}}]${usage}}\n\n`
  }

  #keep(text: string): void {
    if (this.#text.length < keptText) this.#text += text
  }
}
