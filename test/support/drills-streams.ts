/** Streams that fail, and those whose bytes come in an unusual way. */
import type { Shape } from "#test/support/drill-shapes.ts"
import type { Drill } from "#test/support/drills.ts"
import {
  answer,
  failed,
  good,
  impatient,
  midHeaders,
  throttled,
  timedOut,
  unavailable
} from "#test/support/drills-whole.ts"
import { chunk, head, lastChunk, type Script } from "#test/support/RawUpstream.ts"

const begin = (shape: Shape) => head(200, { "content-type": shape.streamType, "transfer-encoding": "chunked" })
const said = (shape: Shape, from = 0, to = shape.events.length): ReadonlyArray<Buffer> =>
  shape.events.slice(from, to).map(chunk)
export const half = (shape: Shape): Script => [begin(shape), ...said(shape, 0, shape.half)]
export const streamed = (shape: Shape, events: ReadonlyArray<Buffer>): Script => [
  begin(shape),
  ...events.map(chunk),
  lastChunk
]
/** In the other line discipline that the standard allows, with comments, cut within characters. */
const crlf = (event: Buffer): Buffer =>
  Buffer.from(`: comment\r\n\r\n${event.toString().trimEnd().replaceAll("\n", "\r\n")}\r\n\r\n`)
const multiline = (event: Buffer): Buffer =>
  Buffer.from(event.toString().replace(/,(?="(?:choices|delta|index)")/, ",\ndata: "))
const bytewise = (bytes: Buffer): ReadonlyArray<Buffer> =>
  Array.from({ length: Math.ceil(bytes.length / 7) }, (_, index) => bytes.subarray(index * 7, index * 7 + 7))
const sseOnly: Drill["wires"] = ["chat", "anthropic", "messages"]
const brokenOff = { status: 200, code: "upstream_error", charged: "half" } as const
const stalled = { status: 200, code: "upstream_timeout", charged: "half", atLeast: 450, within: 4_000 } as const

export const streamDrills: ReadonlyArray<Omit<Drill, "stream">> = [
  { name: "in one piece", answers: (s) => [streamed(s, s.events)], expected: good },
  { name: "slow headers", answers: (s) => [[200, ...streamed(s, s.events)]], expected: good },
  {
    name: "CR LF and comments",
    wires: sseOnly,
    answers: (s) => [streamed(s, s.events.map(crlf))],
    expected: good
  },
  {
    name: "data of several lines",
    wires: sseOnly,
    answers: (s) => [streamed(s, s.events.map(multiline))],
    expected: good
  },
  {
    name: "cut within characters",
    answers: (s) => [
      [begin(s), ...bytewise(Buffer.concat([...s.events])).flatMap((part) => [chunk(part), 1]), lastChunk]
    ],
    expected: good
  },
  { name: "no headers ever", params: impatient, answers: () => [["hang"]], expected: timedOut },
  { name: "no event ever", params: impatient, answers: (s) => [[begin(s), "hang"]], expected: timedOut },
  {
    name: "heartbeats for ever",
    params: impatient,
    answers: (s) => [[begin(s), ...Array.from({ length: 40 }, () => [chunk(s.heartbeat), 100]).flat(), "hang"]],
    expected: timedOut
  },
  { name: "half a stream ever", params: impatient, answers: (s) => [[...half(s), "hang"]], expected: stalled },
  {
    name: "half a stream and heartbeats",
    params: impatient,
    answers: (s) => [[...half(s), ...Array.from({ length: 40 }, () => [chunk(s.heartbeat), 100]).flat(), "hang"]],
    expected: stalled
  },
  { name: "reset before headers", answers: () => [["reset"]], expected: failed },
  { name: "reset within headers", answers: () => [[midHeaders, "reset"]], expected: failed },
  { name: "reset before the first event", answers: (s) => [[begin(s), "reset"]], expected: failed },
  { name: "reset mid stream", answers: (s) => [[...half(s), "reset"]], expected: brokenOff },
  {
    name: "reset within an event",
    answers: (s) => [[...half(s), chunk(s.events[s.half]!.subarray(0, -9)), "reset"]],
    expected: brokenOff
  },
  { name: "ended mid stream", answers: (s) => [[...half(s), lastChunk]], expected: brokenOff },
  { name: "reset after the end", answers: (s) => [[begin(s), ...said(s), "reset"]], expected: good },
  {
    name: "open after the end",
    answers: (s) => [[begin(s), ...said(s), "hang"]],
    expected: { ...good, within: 3_000 }
  },
  {
    name: "no usage reported",
    wires: ["chat", "bedrock"],
    answers: (s) => [
      streamed(
        s,
        s.events.filter((event) => !/"(?:prompt_tokens|inputTokens)"/.test(event.toString()))
      )
    ],
    expected: { status: 200, charged: "counted" }
  },
  { name: "nothing at all", answers: (s) => [streamed(s, [])], expected: failed },
  { name: "invalid JSON first", answers: (s) => [streamed(s, [s.brokenEvent])], expected: failed },
  {
    name: "invalid JSON mid stream",
    answers: (s) => [streamed(s, [...s.events.slice(0, s.half), s.brokenEvent, ...s.events.slice(s.half)])],
    expected: brokenOff
  },
  { name: "an error first", answers: (s) => [streamed(s, [s.errorEvent])], expected: failed },
  {
    name: "an error mid stream",
    answers: (s) => [streamed(s, [...s.events.slice(0, s.half), s.errorEvent])],
    expected: brokenOff
  },
  {
    name: "an error in the same write",
    answers: (s) => [[begin(s), chunk(Buffer.concat([...s.events.slice(0, s.half), s.errorEvent])), lastChunk]],
    // Nothing had reached the client yet.
    expected: failed
  },
  {
    name: "an error before any content",
    answers: (s) => [[begin(s), chunk(s.events[0]!), 50, chunk(s.errorEvent), lastChunk]],
    expected: failed
  },
  { name: "an answer that is no stream", answers: (s) => [[answer(s)]], expected: failed },
  { name: "a 503", answers: () => [[unavailable]], expected: failed },
  {
    name: "a 429 for long",
    params: { max_retries: 2 },
    answers: () => [[throttled("30")]],
    expected: { status: 429, code: "rate_limit_exceeded", charged: "nothing", retryAfter: "30", within: 3_000 }
  },
  {
    name: "a 503 and then a stream",
    params: { max_retries: 1 },
    answers: (s) => [[unavailable], streamed(s, s.events)],
    expected: { ...good, tries: 2 }
  },
  {
    name: "an error and then a stream",
    params: { max_retries: 1 },
    answers: (s) => [streamed(s, [s.errorEvent]), streamed(s, s.events)],
    expected: { ...good, tries: 2 }
  },
  {
    name: "a reset before any content and then a stream",
    params: { max_retries: 1 },
    answers: (s) => [[begin(s), chunk(s.events[0]!), 50, "reset"], streamed(s, s.events)],
    expected: { ...good, tries: 2 }
  }
]
