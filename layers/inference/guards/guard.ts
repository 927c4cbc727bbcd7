import { isJsonObject, type JsonObject } from "#domain/json.ts"
import { makeStreamWindows, type StreamWindows } from "#domain/stream-window.ts"
import { parseSseEvent } from "#layers/inference/sse.ts"
import { parseJson } from "#layers/inference/wires/values.ts"

/** Some text of a stream that can be checked now. */
export interface ReadyText {
  readonly checked: string
  /** The event that carries what may go out of it; `masked` is the text as the guardrails left it. Call once. */
  readonly release: (masked: string) => Buffer | undefined
}

/** What becomes of one event: texts to check and send first, then what is left of the event itself. */
export interface Taken {
  readonly ready: ReadonlyArray<ReadyText>
  readonly rest: Buffer | undefined
}

/** Text that is only judged whole: nothing is released before its end. */
const wholeText = (): StreamWindows => {
  let text = ""
  return {
    push: (delta) => void (text += delta),
    end: () => {
      if (text === "") return undefined
      const checked = text
      // A choice ends and then the stream does: what was handed over once is not waiting any more.
      text = ""
      return { checked, context: 0, heldBack: 0 }
    },
    release: (_window, masked) => masked
  }
}

/** One text that grows in a stream: the content of a choice, the arguments of a tool call. */
interface Channel {
  /** What it is flushed with. */
  readonly owner: number
  readonly windows: StreamWindows
  readonly event: (text: string) => Buffer
}

/** The growing texts of one stream. */
export class Channels {
  readonly #channels = new Map<string, Channel>()
  readonly #wholeAnswer: boolean

  constructor(wholeAnswer: boolean) {
    this.#wholeAnswer = wholeAnswer
  }

  /**
   * Adds to the text of a name and returns what can be checked now. `event` makes the event that carries a piece;
   * `whole`: the text is judged only as a whole.
   */
  push(
    name: string,
    text: string,
    of: { readonly owner: number; readonly whole?: boolean; readonly event: (text: string) => Buffer }
  ): ReadonlyArray<ReadyText> {
    let channel = this.#channels.get(name)
    if (channel === undefined) {
      const whole = of.whole === true || this.#wholeAnswer
      channel = { owner: of.owner, event: of.event, windows: whole ? wholeText() : makeStreamWindows() }
      this.#channels.set(name, channel)
    }
    return ready(channel, channel.windows.push(text))
  }

  /** What still waits, of one owner or of all. */
  flush(owner?: number): ReadonlyArray<ReadyText> {
    return [...this.#channels.values()]
      .filter((channel) => owner === undefined || channel.owner === owner)
      .flatMap((channel) => ready(channel, channel.windows.end()))
  }
}

const ready = (channel: Channel, window: ReturnType<StreamWindows["end"]>): ReadonlyArray<ReadyText> =>
  window === undefined
    ? []
    : [
        {
          checked: window.checked,
          release: (masked) => {
            const text = channel.windows.release(window, masked)
            return text === "" ? undefined : channel.event(text)
          }
        }
      ]

/** Takes the texts out of a stream's events; each shape of events is a class of its own. Driven by one fiber. */
export abstract class EventGuard {
  protected readonly channels: Channels

  /** `wholeAnswer`: texts are judged only as a whole. */
  constructor(wholeAnswer: boolean) {
    this.channels = new Channels(wholeAnswer)
  }

  take(event: string): Taken {
    const data = dataOf(event)
    return data === undefined ? nothing : this.takeData(data)
  }

  /** What still waits at the end of the stream. */
  flush(): ReadonlyArray<ReadyText> {
    return this.channels.flush()
  }

  protected abstract takeData(data: JsonObject): Taken
}

const nothing: Taken = { ready: [], rest: undefined }

/** The data of a raw event; undefined for comments and for what is no JSON object. */
const dataOf = (event: string): JsonObject | undefined => {
  const { data } = parseSseEvent(event)
  const parsed = data === undefined ? undefined : parseJson(data)
  return isJsonObject(parsed) ? parsed : undefined
}

/** One event as the gateway writes it. */
export const eventOf = (data: JsonObject, name?: string): Buffer =>
  Buffer.from(`${name === undefined ? "" : `event: ${name}\n`}data: ${JSON.stringify(data)}\n\n`)
