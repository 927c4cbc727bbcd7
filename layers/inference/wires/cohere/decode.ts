/** Answers of Cohere's chat as chat completions, whole and streamed. */
import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"
import { type Usage, usageOf } from "#domain/usage.ts"
import {
  type CalledTool,
  type ChatChoice,
  type ChatHead,
  chatObject,
  type FinishReason,
  mostCalls
} from "#layers/inference/wires/chat/answer.ts"
import type { EventKind, StreamReader } from "#layers/inference/wires/chat/decoder.ts"
import type { ChatStream } from "#layers/inference/wires/chat/stream.ts"
import { malformedAnswer, problemOfFrame, streamCut } from "#layers/inference/wires/problems.ts"
import { countOf, objectOf, objectsOf, stringOf } from "#layers/inference/wires/values.ts"
import type { UpstreamProblem } from "#services/inference/Wire.ts"

/** What Cohere bills, where it says so; else what it counted. Undefined: not a usage object. */
export const usageOfCohere = (value: Json | undefined): Usage | undefined => {
  if (!isJsonObject(value)) return undefined
  const billed = objectOf(value["billed_units"])
  const counted = objectOf(value["tokens"])
  const prompt = billed["input_tokens"] ?? counted["input_tokens"]
  const output = billed["output_tokens"] ?? counted["output_tokens"]
  if (prompt === undefined && output === undefined) return undefined
  const cacheRead = Math.min(countOf(prompt), countOf(value["cached_tokens"]))
  return usageOf({ input: countOf(prompt) - cacheRead, cacheRead, output: countOf(output) })
}

const reasons: Readonly<Record<string, FinishReason>> = {
  COMPLETE: "stop",
  STOP_SEQUENCE: "stop",
  MAX_TOKENS: "length",
  ERROR_LIMIT: "length",
  TOOL_CALL: "tool_calls",
  ERROR_TOXIC: "content_filter"
}

const finishOf = (reason: Json | undefined): FinishReason | UpstreamProblem => {
  if (reason === "ERROR" || reason === "TIMEOUT") return malformedAnswer("generating it failed")
  return reasons[stringOf(reason) ?? ""] ?? "stop"
}

const callOf = (call: JsonObject): CalledTool | undefined => {
  const called = objectOf(call["function"])
  const id = stringOf(call["id"])
  const name = stringOf(called["name"])
  if (id === undefined || name === undefined) return undefined
  return { id, name, arguments: stringOf(called["arguments"]) ?? "" }
}

const joined = (parts: ReadonlyArray<JsonObject>, field: string): string =>
  parts.map((part) => stringOf(part[field]) ?? "").join("")

/** A chat answer as a chat completion; a problem when it is none. */
export const chatOfCohere = (answer: JsonObject, head: ChatHead): JsonObject | UpstreamProblem => {
  const { message } = answer
  if (!isJsonObject(message)) return malformedAnswer("it has no message")
  const finish = finishOf(answer["finish_reason"])
  if (typeof finish === "object") return finish
  const { content } = message
  const parts = typeof content === "string" ? [{ text: content }] : objectsOf(content)
  const listed = objectsOf(message["tool_calls"])
  const calls = listed.map(callOf).filter((call) => call !== undefined)
  if (calls.length !== listed.length || calls.length > mostCalls) return malformedAnswer("a tool call cannot be read")
  const choice: ChatChoice = {
    content: (stringOf(message["tool_plan"]) ?? "") + joined(parts, "text"),
    reasoning: joined(parts, "thinking"),
    thinking: [],
    calls: calls.map((call) => (call.arguments === "" ? { ...call, arguments: "{}" } : call)),
    finish
  }
  return chatObject(head, [choice], usageOfCohere(answer["usage"]))
}

/** The events of a Cohere stream as chat-completion chunks. */
export class CohereReader implements StreamReader {
  readonly #out: ChatStream
  #usage: Usage | undefined
  #call = -1
  #args = false

  constructor(out: ChatStream) {
    this.#out = out
  }

  read(event: string | undefined, data: JsonObject): EventKind {
    const delta = objectOf(data["delta"])
    const message = objectOf(delta["message"])
    switch (data["type"] ?? event) {
      case "message-start":
      case "content-end":
      case "citation-start":
      case "citation-end":
        return "progress"
      case "content-start":
      case "content-delta": {
        const content = objectOf(message["content"])
        this.#out.reasoning(0, stringOf(content["thinking"]) ?? "")
        this.#out.content(0, stringOf(content["text"]) ?? "")
        return "progress"
      }
      case "tool-plan-delta":
        this.#out.content(0, stringOf(message["tool_plan"]) ?? "")
        return "progress"
      case "tool-call-start": {
        const call = callOf(objectOf(message["tool_calls"]))
        if (call === undefined) return malformedAnswer("a tool call cannot be read")
        if (this.#out.calls(0) >= mostCalls) return malformedAnswer("it has too many tool calls")
        this.#call = this.#out.call(0, call)
        this.#args = call.arguments !== ""
        return "progress"
      }
      case "tool-call-delta":
        return this.#arguments(stringOf(objectOf(objectOf(message["tool_calls"])["function"])["arguments"]) ?? "")
      case "tool-call-end":
        return this.#args ? "progress" : this.#arguments("{}")
      case "message-end":
        return this.#end(delta)
      default:
        return data["message"] !== undefined && data["type"] === undefined ? problemOfFrame(data) : "nothing"
    }
  }

  close(): UpstreamProblem | undefined {
    return streamCut
  }

  usage(): Usage | undefined {
    return this.#usage
  }

  #arguments(text: string): EventKind {
    if (this.#call === -1) return malformedAnswer("a delta belongs to no tool call")
    this.#args ||= text !== ""
    this.#out.callArguments(0, this.#call, text)
    return "progress"
  }

  #end(delta: JsonObject): EventKind {
    this.#usage = usageOfCohere(delta["usage"])
    const finish = finishOf(delta["finish_reason"])
    if (typeof finish === "object") return finish
    this.#out.finish(0, finish)
    if (this.#usage !== undefined) this.#out.usage(this.#usage)
    return "end"
  }
}
