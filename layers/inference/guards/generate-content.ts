import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"
import { answerTexts } from "#domain/prompt-texts.ts"
import { EventGuard, eventOf, type ReadyText, type Taken } from "#layers/inference/guards/guard.ts"
import { parseJson } from "#layers/inference/wires/values.ts"

/** Gemini's stream: each event is an answer that holds the next parts. */
export class GenerateContentGuard extends EventGuard {
  #envelope: JsonObject = {}

  protected takeData(chunk: JsonObject): Taken {
    const { candidates, usageMetadata: _usage, ...envelope } = chunk
    this.#envelope = envelope
    if (!Array.isArray(candidates)) return { ready: [], rest: eventOf(chunk) }
    const ready: Array<ReadyText> = []
    const left = candidates.map((candidate: Json, at): Json => this.#candidate(candidate, at, ready))
    const says = left.some((candidate) => isJsonObject(candidate) && candidate["finishReason"] !== undefined)
    const kept = left.some((candidate) => partsOf(candidate).length > 0)
    return { ready, rest: says || kept ? eventOf({ ...chunk, candidates: left }) : undefined }
  }

  #candidate(candidate: Json, at: number, ready: Array<ReadyText>): Json {
    if (!isJsonObject(candidate)) return candidate
    const index = typeof candidate["index"] === "number" ? candidate["index"] : at
    const kept: Array<Json> = []
    for (const part of partsOf(candidate)) this.#part(part, index, ready, kept)
    if (candidate["finishReason"] !== undefined) ready.push(...this.channels.flush(index))
    if (!isJsonObject(candidate["content"])) return candidate
    return { ...candidate, content: { ...candidate["content"], parts: kept } }
  }

  #part(part: Json, index: number, ready: Array<ReadyText>, kept: Array<Json>): void {
    if (!isJsonObject(part)) return void kept.push(part)
    const { text, ...marks } = part
    if (typeof text === "string" && text !== "") {
      const thought = part["thought"] === true
      const event = (piece: string) => this.#event(index, thought ? { text: piece, thought } : { text: piece })
      ready.push(...this.channels.push(`${index}.${thought}`, text, { owner: index, event }))
      // What signs a thought goes out with it.
      if (part["thoughtSignature"] !== undefined) {
        ready.push(...this.channels.flush(index))
        kept.push({ ...marks, text: "" })
      }
      return
    }
    if (answerTexts({ content: [part] }).texts.length === 0) return void kept.push(part)
    // A call, or a part of another kind that speaks: judged whole, after the text before it.
    ready.push(...this.channels.flush(index), {
      checked: JSON.stringify(part),
      release: (masked) => {
        const changed = parseJson(masked)
        return isJsonObject(changed) ? this.#event(index, changed) : undefined
      }
    })
  }

  #event(index: number, part: JsonObject): Buffer {
    return eventOf({ ...this.#envelope, candidates: [{ index, content: { role: "model", parts: [part] } }] })
  }
}

const partsOf = (candidate: Json): ReadonlyArray<Json> => {
  const content = isJsonObject(candidate) ? candidate["content"] : undefined
  const parts = isJsonObject(content) ? content["parts"] : undefined
  return Array.isArray(parts) ? (parts as ReadonlyArray<Json>) : []
}
