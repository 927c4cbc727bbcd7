import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"
import { answerTexts } from "#domain/prompt-texts.ts"
import { EventGuard, eventOf, type ReadyText, type Taken } from "#layers/inference/guards/guard.ts"

/** Where the text of each kind of delta is. The arguments of a tool are judged only as a whole. */
const textOfDelta = { text_delta: "text", thinking_delta: "thinking", input_json_delta: "partial_json" } as const

const isTextDelta = (type: Json | undefined): type is keyof typeof textOfDelta =>
  typeof type === "string" && Object.hasOwn(textOfDelta, type)

/** Texts that come whole inside an event: checked together, and the event leaves with what the guardrails made of them. */
const wholeEvent = (
  content: JsonObject,
  event: (content: JsonObject) => Buffer
): ReadonlyArray<ReadyText> | undefined => {
  const found = answerTexts({ content: [content] })
  if (found.texts.length === 0) return undefined
  const separator = "\n\u0000\n"
  return [
    {
      checked: found.texts.join(separator),
      release: (masked) => {
        const texts = masked.split(separator)
        if (texts.length !== found.texts.length) return undefined
        const [replaced] = found.replaced(texts)["content"] as ReadonlyArray<Json>
        return isJsonObject(replaced) ? event(replaced) : undefined
      }
    }
  ]
}

/** Anthropic's message events. */
export class MessagesGuard extends EventGuard {
  protected takeData(data: JsonObject): Taken {
    const type = typeof data["type"] === "string" ? data["type"] : "message"
    const index = typeof data["index"] === "number" ? data["index"] : -1
    const rest = eventOf(data, type)
    switch (type) {
      case "content_block_start": {
        const block = data["content_block"]
        const whole = isJsonObject(block)
          ? wholeEvent(block, (content_block) => eventOf({ ...data, content_block }, type))
          : undefined
        return whole === undefined ? { ready: [], rest } : { ready: whole, rest: undefined }
      }
      case "content_block_delta":
        return this.#delta(data, index, rest)
      case "content_block_stop":
        return { ready: this.channels.flush(index), rest }
      case "message_delta":
      case "message_stop":
        return { ready: this.channels.flush(), rest }
      default:
        return { ready: [], rest }
    }
  }

  #delta(data: JsonObject, index: number, rest: Buffer): Taken {
    const delta = isJsonObject(data["delta"]) ? data["delta"] : {}
    const type = delta["type"]
    if (!isTextDelta(type)) {
      // A signature belongs to the thinking before it, which therefore goes first.
      if (type === "signature_delta") return { ready: this.channels.flush(index), rest }
      const event = (changed: JsonObject) => eventOf({ ...data, delta: changed }, "content_block_delta")
      const whole = wholeEvent(delta, event)
      return whole === undefined ? { ready: [], rest } : { ready: whole, rest: undefined }
    }
    const field = textOfDelta[type]
    const text = delta[field]
    if (typeof text !== "string" || text === "") return { ready: [], rest }
    const event = (piece: string) =>
      eventOf({ type: "content_block_delta", index, delta: { type, [field]: piece } }, "content_block_delta")
    const whole = type === "input_json_delta"
    return { ready: this.channels.push(`${index}.${type}`, text, { owner: index, whole, event }), rest: undefined }
  }
}
