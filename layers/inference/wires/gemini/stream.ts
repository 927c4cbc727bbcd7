import { isJsonObject, type JsonObject } from "#domain/json.ts"
import type { Usage } from "#domain/usage.ts"
import { mostCalls } from "#layers/inference/wires/chat/answer.ts"
import type { EventKind, StreamReader } from "#layers/inference/wires/chat/decoder.ts"
import type { ChatStream } from "#layers/inference/wires/chat/stream.ts"
import { unfinishedUsage } from "#layers/inference/wires/estimates.ts"
import {
  callOf,
  candidateText,
  finishOf,
  isBlocked,
  partsOf,
  usageOfGemini
} from "#layers/inference/wires/gemini/decode.ts"
import type { NativeKind, NativeReader } from "#layers/inference/wires/native.ts"
import { malformedAnswer, problemOfFrame, streamCut } from "#layers/inference/wires/problems.ts"
import { objectsOf, stringOf } from "#layers/inference/wires/values.ts"
import type { UpstreamProblem } from "#services/inference/Wire.ts"

/** Text beyond this is not kept for estimating. */
const keptText = 8 * 1024 * 1024
/** More candidates than any model gives. */
const mostCandidates = 128

/** The chunks of a Gemini stream as chat-completion chunks. The stream's end is the connection's. */
export class GenerateReader implements StreamReader {
  readonly #out: ChatStream
  readonly #callIds: string
  #usage: Usage | undefined
  #finished = new Set<number>()

  /** `callIds`: what the ids of tool calls begin with, for models that name their calls not. */
  constructor(out: ChatStream, callIds: string) {
    this.#out = out
    this.#callIds = callIds
  }

  read(_event: string | undefined, data: JsonObject): EventKind {
    if (data["error"] !== undefined) return problemOfFrame(data)
    const model = stringOf(data["modelVersion"])
    if (model !== undefined) this.#out.model(model)
    this.#usage = usageOfGemini(data["usageMetadata"]) ?? this.#usage
    const candidates = objectsOf(data["candidates"])
    if (candidates.length === 0 && isBlocked(data)) this.#finish(0, "content_filter")
    for (const [at, candidate] of candidates.entries()) {
      const problem = this.#candidate(candidate, at)
      if (problem !== undefined) return problem
    }
    return candidates.length > 0 || this.#finished.size > 0 ? "progress" : "nothing"
  }

  close(): UpstreamProblem | undefined {
    if (this.#finished.size === 0) return streamCut
    if (this.#usage !== undefined) this.#out.usage(this.#usage)
    return undefined
  }

  usage(): Usage | undefined {
    const usage = this.#usage
    return usage === undefined || this.#finished.size > 0 ? usage : unfinishedUsage(usage, this.#out.text())
  }

  #candidate(candidate: JsonObject, at: number): UpstreamProblem | undefined {
    const { index } = candidate
    const choice = typeof index === "number" && Number.isInteger(index) ? index : at
    if (choice < 0 || choice >= mostCandidates) return malformedAnswer("it has too many candidates")
    for (const part of partsOf(candidate)) {
      if (isJsonObject(part["functionCall"])) {
        const index = this.#out.calls(choice)
        const call = callOf(part, `call_${this.#callIds}_${choice}_${index}`)
        if (call === undefined || index >= mostCalls) return malformedAnswer("a tool call cannot be read")
        this.#out.call(choice, call)
      } else if (part["thought"] === true) this.#out.reasoning(choice, stringOf(part["text"]) ?? "")
      else this.#out.content(choice, stringOf(part["text"]) ?? "")
    }
    const reason = finishOf(candidate["finishReason"], this.#out.calls(choice))
    if (typeof reason === "object") return reason
    if (reason !== undefined) this.#finish(choice, reason)
    return undefined
  }

  #finish(choice: number, reason: Parameters<ChatStream["finish"]>[1]): void {
    if (this.#finished.has(choice)) return
    this.#finished.add(choice)
    this.#out.finish(choice, reason)
  }
}

/** Usage, text and end of a Gemini stream that goes to the client untouched. */
export class NativeGenerateReader implements NativeReader {
  #usage: Usage | undefined
  #text = ""
  #finished = false

  read(_event: string | undefined, data: JsonObject): NativeKind {
    if (data["error"] !== undefined) return problemOfFrame(data)
    this.#usage = usageOfGemini(data["usageMetadata"]) ?? this.#usage
    for (const candidate of objectsOf(data["candidates"])) {
      if (this.#text.length < keptText) this.#text += candidateText(candidate)
      this.#finished ||= stringOf(candidate["finishReason"]) !== undefined
    }
    this.#finished ||= isBlocked(data)
    return "content"
  }

  close(): UpstreamProblem | undefined {
    return this.#finished ? undefined : streamCut
  }

  usage(): Usage | undefined {
    const usage = this.#usage
    return usage === undefined || this.#finished ? usage : unfinishedUsage(usage, this.#text)
  }

  text(): string {
    return this.#text
  }
}
