/**
 * A stream under a post guardrail: what the model says is held back in sentence windows until it is checked, so that
 * blocked text never reaches the client (decisions.md, section 8).
 */
import { Effect } from "effect"
import type { GuardrailBlocked } from "#domain/errors.ts"
import type { GuardrailEvent } from "#domain/guardrails.ts"
import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"
import { makeStreamWindows, type StreamWindow, type StreamWindows } from "#domain/stream-window.ts"
import type { GuardrailPolicy } from "#services/guardrails/GuardrailEngine.ts"
import type { StreamConsumer, StreamControl, StreamedAnswer, StreamEnd } from "#services/inference/ProviderRouter.ts"

/** Events that may wait for their checks before the upstream is asked to pause. */
const highWater = 64

/** Text that is only judged whole: nothing is released before its end. */
const wholeText = (): StreamWindows => {
  let text = ""
  return {
    push: (delta) => void (text += delta),
    end: () => (text === "" ? undefined : { checked: text, context: 0, heldBack: 0 }),
    release: (_window, masked) => masked
  }
}

/** One text that grows in a stream: the content or the reasoning of a choice, the arguments of a tool call. */
interface Channel {
  readonly choice: number
  readonly windows: StreamWindows
  /** The delta that carries a piece of this text. */
  readonly delta: (text: string) => JsonObject
}

type Mutable = { [key: string]: Json }

const dataOf = (event: string): JsonObject | undefined => {
  const data = event
    .split(/\r\n|\r|\n/)
    .filter((line) => line.startsWith("data:"))
    .map((line) => line.slice(line.charCodeAt(5) === 0x20 ? 6 : 5))
    .join("\n")
  try {
    const parsed: Json = JSON.parse(data)
    return isJsonObject(parsed) ? parsed : undefined
  } catch {
    return undefined
  }
}

const eventOf = (data: JsonObject): Buffer => Buffer.from(`data: ${JSON.stringify(data)}\n\n`)

const textFields = ["content", "reasoning_content", "reasoning", "refusal"] as const

/** The state machine over one stream's chat-completion chunks. Driven by one fiber. */
class ChunkGuard {
  readonly #channels = new Map<string, Channel>()
  readonly #wholeAnswer: boolean
  #envelope: JsonObject = {}

  constructor(wholeAnswer: boolean) {
    this.#wholeAnswer = wholeAnswer
  }

  #channel(key: string, choice: number, whole: boolean, delta: (text: string) => JsonObject): Channel {
    let channel = this.#channels.get(key)
    if (channel === undefined) {
      channel = { choice, delta, windows: whole || this.#wholeAnswer ? wholeText() : makeStreamWindows() }
      this.#channels.set(key, channel)
    }
    return channel
  }

  /** Takes the texts out of a chunk: what is left of it, and the windows that can be checked now. */
  take(chunk: JsonObject): { readonly rest: JsonObject; readonly ready: Array<readonly [Channel, StreamWindow]> } {
    const { choices, usage: _usage, ...envelope } = chunk
    this.#envelope = envelope
    const ready: Array<readonly [Channel, StreamWindow]> = []
    if (!Array.isArray(choices)) return { rest: chunk, ready }
    const push = (channel: Channel, text: string) => {
      const window = channel.windows.push(text)
      if (window !== undefined) ready.push([channel, window])
    }
    const rest = choices.map((choice: Json): Json => {
      if (!isJsonObject(choice) || !isJsonObject(choice["delta"])) return choice
      const index = typeof choice["index"] === "number" ? choice["index"] : 0
      const delta: Mutable = { ...choice["delta"] }
      for (const field of textFields) {
        const text = delta[field]
        if (typeof text !== "string" || text === "") continue
        push(
          this.#channel(`${index}.${field}`, index, false, (piece) => ({ [field]: piece })),
          text
        )
        delete delta[field]
      }
      if (Array.isArray(delta["tool_calls"])) {
        delta["tool_calls"] = delta["tool_calls"].map((call: Json, at): Json =>
          this.#withoutArguments(index, call, at, push)
        )
      }
      if (choice["finish_reason"] !== null && choice["finish_reason"] !== undefined) ready.push(...this.flush(index))
      return { ...choice, delta }
    })
    return { rest: { ...chunk, choices: rest }, ready }
  }

  #withoutArguments(choice: number, call: Json, at: number, push: (channel: Channel, text: string) => void): Json {
    if (!isJsonObject(call) || !isJsonObject(call["function"])) return call
    const text = call["function"]["arguments"]
    if (typeof text !== "string" || text === "") return call
    const index = typeof call["index"] === "number" ? call["index"] : at
    push(
      this.#channel(`${choice}.tool.${index}`, choice, true, (piece) => ({
        tool_calls: [{ index, function: { arguments: piece } }]
      })),
      text
    )
    return { ...call, function: { ...call["function"], arguments: "" } }
  }

  /** What still waits, of one choice or of all. */
  flush(choice?: number): Array<readonly [Channel, StreamWindow]> {
    const ready: Array<readonly [Channel, StreamWindow]> = []
    for (const channel of this.#channels.values()) {
      if (choice !== undefined && channel.choice !== choice) continue
      const window = channel.windows.end()
      if (window !== undefined) ready.push([channel, window])
    }
    return ready
  }

  /** The event that carries a checked text. */
  event(channel: Channel, text: string): Buffer {
    return eventOf({
      ...this.#envelope,
      choices: [{ index: channel.choice, delta: channel.delta(text), finish_reason: null }]
    })
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

/**
 * Starts a streamed answer of chat-completion chunks under a policy. Everything that leaves has been checked; a block
 * cancels the upstream and ends the stream with the failure. `run` runs one effect in the background.
 */
export const guardStream = (
  answer: StreamedAnswer,
  policy: GuardrailPolicy,
  events: Array<GuardrailEvent>,
  consumer: StreamConsumer,
  run: (effect: Effect.Effect<void>) => unknown
): StreamControl => {
  const guard = new ChunkGuard(policy.wholeAnswer)
  const queue: Array<string> = []
  let upstreamEnd: StreamEnd | undefined
  const state = { over: false }
  /** Windows that passed, summed up: a stream is one entry of the log for each guardrail. */
  const passed = new Map<string, GuardrailEvent>()
  let working = false
  let pausedByClient = false
  let pausedByQueue = false
  let control: StreamControl | undefined

  const release = Effect.fnUntraced(function* (ready: ReadonlyArray<readonly [Channel, StreamWindow]>) {
    for (const [channel, window] of ready) {
      const verdict = yield* policy.check("post", [window.checked])
      if (state.over) return
      for (const event of verdict.events) {
        if (event.status !== "passed") events.push(event)
        else {
          const durationMs = event.durationMs + (passed.get(event.guardrailId)?.durationMs ?? 0)
          passed.set(event.guardrailId, { ...event, durationMs })
        }
      }
      if (verdict.blocked !== undefined) return block(verdict.blocked)
      const text = channel.windows.release(window, verdict.texts[0] ?? window.checked)
      if (text !== "") consumer.chunk(guard.event(channel, text))
    }
  })

  const block = (failure: GuardrailBlocked) => {
    state.over = true
    const generated = upstreamEnd ?? control?.cancel()
    consumer.end({ usage: generated?.usage, text: generated?.text ?? (() => ""), failure })
  }

  const work = Effect.gen(function* () {
    for (let event = queue.shift(); event !== undefined && !state.over; event = queue.shift()) {
      if (pausedByQueue && queue.length < highWater / 2) {
        pausedByQueue = false
        if (!pausedByClient) control?.resume()
      }
      const chunk = dataOf(event)
      if (chunk === undefined) continue
      const { ready, rest } = guard.take(chunk)
      yield* release(ready)
      if (!state.over && saysSomething(rest)) consumer.chunk(eventOf(rest))
    }
    if (state.over || upstreamEnd === undefined) return
    if (upstreamEnd.failure === undefined) yield* release(guard.flush())
    if (state.over) return
    state.over = true
    events.push(...passed.values())
    consumer.end(upstreamEnd)
  })

  const wake = () => {
    if (working || state.over) return
    working = true
    run(
      Effect.ensuring(
        work,
        Effect.sync(() => {
          working = false
          if (!state.over && (queue.length > 0 || upstreamEnd !== undefined)) wake()
        })
      )
    )
  }

  control = answer.start({
    chunk: (bytes) => {
      for (const event of bytes.toString("utf8").split(/\r\n\r\n|\n\n|\r\r/)) if (event !== "") queue.push(event)
      if (queue.length > highWater && !pausedByQueue) {
        pausedByQueue = true
        queueMicrotask(() => control?.pause())
      }
      wake()
    },
    end: (end) => {
      upstreamEnd = end
      wake()
    }
  })

  return {
    pause: () => {
      pausedByClient = true
      control?.pause()
    },
    resume: () => {
      pausedByClient = false
      if (!pausedByQueue) control?.resume()
    },
    cancel: () => {
      state.over = true
      return upstreamEnd ?? control.cancel()
    }
  }
}
