import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"
import { EventGuard, eventOf, type ReadyText, type Taken } from "#layers/inference/guards/guard.ts"

type Mutable = { [key: string]: Json }

const textFields = ["content", "reasoning_content", "reasoning", "refusal"] as const

/** Chat-completion chunks. */
export class ChatGuard extends EventGuard {
  #envelope: JsonObject = {}

  protected takeData(chunk: JsonObject): Taken {
    const { choices, usage: _usage, ...envelope } = chunk
    this.#envelope = envelope
    if (!Array.isArray(choices)) return { ready: [], rest: eventOf(chunk) }
    const ready: Array<ReadyText> = []
    const rest = { ...chunk, choices: choices.map((choice: Json): Json => this.#choice(choice, ready)) }
    return { ready, rest: saysSomething(rest) ? eventOf(rest) : undefined }
  }

  #choice(choice: Json, ready: Array<ReadyText>): Json {
    if (!isJsonObject(choice) || !isJsonObject(choice["delta"])) return choice
    const index = typeof choice["index"] === "number" ? choice["index"] : 0
    const delta: Mutable = { ...choice["delta"] }
    for (const field of textFields) {
      const text = delta[field]
      if (typeof text !== "string" || text === "") continue
      const event = (piece: string) => this.#event(index, { [field]: piece })
      ready.push(...this.channels.push(`${index}.${field}`, text, { owner: index, event }))
      delete delta[field]
    }
    if (Array.isArray(delta["tool_calls"])) {
      delta["tool_calls"] = delta["tool_calls"].map((call: Json, at): Json =>
        this.#withoutArguments(index, call, at, ready)
      )
    }
    if (choice["finish_reason"] !== null && choice["finish_reason"] !== undefined) {
      ready.push(...this.channels.flush(index))
    }
    return { ...choice, delta }
  }

  #withoutArguments(choice: number, call: Json, at: number, ready: Array<ReadyText>): Json {
    if (!isJsonObject(call) || !isJsonObject(call["function"])) return call
    const text = call["function"]["arguments"]
    if (typeof text !== "string" || text === "") return call
    const index = typeof call["index"] === "number" ? call["index"] : at
    const event = (piece: string) => this.#event(choice, { tool_calls: [{ index, function: { arguments: piece } }] })
    ready.push(...this.channels.push(`${choice}.tool.${index}`, text, { owner: choice, whole: true, event }))
    return { ...call, function: { ...call["function"], arguments: "" } }
  }

  #event(choice: number, delta: JsonObject): Buffer {
    return eventOf({ ...this.#envelope, choices: [{ index: choice, delta, finish_reason: null }] })
  }
}

/** Whether a chunk says anything once its texts are taken out. */
const saysSomething = (chunk: JsonObject): boolean => {
  const choices = chunk["choices"]
  if (!Array.isArray(choices) || choices.length === 0) return true
  return choices.some(
    (choice: Json) =>
      isJsonObject(choice) &&
      ((isJsonObject(choice["delta"]) && Object.keys(choice["delta"]).length > 0) ||
        (choice["finish_reason"] !== null && choice["finish_reason"] !== undefined))
  )
}
