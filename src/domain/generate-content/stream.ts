import { callPart, finishOf, textParts, usageMetadataOf } from "#domain/generate-content/answer.ts"
import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"

const listOf = (value: Json | undefined): ReadonlyArray<Json> => (Array.isArray(value) ? value : [])
const objectOf = (value: Json | undefined): JsonObject => (isJsonObject(value) ? value : {})

interface GrowingCall {
  call: JsonObject
  arguments: string
}

/**
 * Chat-completion chunks as the events of Google's stream. Tool calls leave whole, with the end of their choice; that end
 * waits for the usage, which Google reports with it.
 */
export class GenerateContentEvents {
  readonly #calls = new Map<number, Array<GrowingCall>>()
  #head: JsonObject = {}
  #finished: Array<Json> = []

  /** The events that a chunk becomes. */
  take(chunk: JsonObject): ReadonlyArray<JsonObject> {
    this.#head = { modelVersion: chunk["model"] ?? "", responseId: chunk["id"] ?? "" }
    const candidates = listOf(chunk["choices"])
      .filter(isJsonObject)
      .flatMap((choice) => this.#candidate(choice))
    const usageMetadata = usageMetadataOf(chunk["usage"])
    const events = candidates.length === 0 ? [] : [{ candidates, ...this.#head }]
    if (usageMetadata === undefined) return events
    return [...events, { ...this.#last(), usageMetadata, ...this.#head }]
  }

  /** What waits for a usage that did not come. */
  end(): ReadonlyArray<JsonObject> {
    return this.#finished.length === 0 ? [] : [{ ...this.#last(), ...this.#head }]
  }

  #last(): JsonObject {
    const candidates = this.#finished
    this.#finished = []
    return candidates.length === 0 ? {} : { candidates }
  }

  #candidate(choice: JsonObject): ReadonlyArray<Json> {
    const index = typeof choice["index"] === "number" ? choice["index"] : 0
    const delta = objectOf(choice["delta"])
    for (const call of listOf(delta["tool_calls"])) if (isJsonObject(call)) this.#grow(index, call)
    const reason = choice["finish_reason"]
    if (reason !== null && reason !== undefined) {
      const parts = [...textParts(delta), ...this.#takeCalls(index)]
      this.#finished.push({ content: { role: "model", parts }, finishReason: finishOf(reason), index })
      return []
    }
    const parts = textParts(delta)
    return parts.length === 0 ? [] : [{ content: { role: "model", parts }, index }]
  }

  #grow(choice: number, call: JsonObject): void {
    const calls = this.#calls.get(choice) ?? []
    this.#calls.set(choice, calls)
    const index = typeof call["index"] === "number" ? Math.min(call["index"], calls.length) : calls.length
    const more = objectOf(call["function"])["arguments"]
    const known = calls[index]
    if (known === undefined) calls.push({ call, arguments: typeof more === "string" ? more : "" })
    else if (typeof more === "string") known.arguments += more
  }

  #takeCalls(choice: number): ReadonlyArray<JsonObject> {
    const calls = this.#calls.get(choice) ?? []
    this.#calls.delete(choice)
    return calls.map(({ arguments: text, call }) =>
      callPart({ ...call, function: { ...objectOf(call["function"]), arguments: text } })
    )
  }
}
