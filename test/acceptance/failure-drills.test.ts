/**
 * Failing upstreams on every wire, through a started gateway: each call ends in its documented error within its
 * deadline, is charged exactly for what was generated, and leaves neither a reservation nor a connection.
 */
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { openDatabase, registerModel, until } from "#test/support/acceptance.ts"
import { anthropic, bedrock, chat, messages, type Shape } from "#test/support/drill-shapes.ts"
import { check, type Drill, heldBy, nameOf, play, type Played, prepare, type Stage } from "#test/support/drills.ts"
import { startGateway } from "#test/support/Gateway.ts"
import { chunk, head, lastChunk, RawUpstream, type Script, whole } from "#test/support/RawUpstream.ts"

const failed = { status: 502, code: "upstream_error", charged: "nothing" } as const
const timedOut = { status: 504, code: "upstream_timeout", charged: "nothing", atLeast: 450, within: 4_000 } as const
const good = { status: 200, charged: "reported" } as const
const impatient = { timeout: 0.5, stream_timeout: 0.5 }

const answer = (shape: Shape): Buffer => whole(shape.answer)
const halves = (bytes: Buffer): readonly [Buffer, Buffer] => [
  bytes.subarray(0, bytes.length - 60),
  bytes.subarray(bytes.length - 60)
]
const unavailable = whole('{"error":{"message":"Try later.","type":"server_error"}}', 503)
const throttled = (after: string) => whole('{"error":{"message":"Too many."}}', 429, { "retry-after": after })
const midHeaders = Buffer.from("HTTP/1.1 200 OK\r\ncontent-type: application/js")
/** The same answer with a length that is off. */
const lying = (shape: Shape, by: number): Buffer =>
  Buffer.concat([
    head(200, { "content-type": "application/json", "content-length": Buffer.byteLength(shape.answer) + by }),
    Buffer.from(shape.answer)
  ])

const buffered: ReadonlyArray<Omit<Drill, "stream">> = [
  { name: "slow headers", answers: (s) => [[200, answer(s)]], expected: good },
  { name: "slow body", answers: (s) => [[halves(answer(s))[0], 200, halves(answer(s))[1]]], expected: good },
  { name: "headers too slow", params: impatient, answers: (s) => [[3_000, answer(s)]], expected: timedOut },
  {
    name: "body too slow",
    params: impatient,
    answers: (s) => [[halves(answer(s))[0], 3_000, halves(answer(s))[1]]],
    expected: timedOut
  },
  { name: "no headers ever", params: impatient, answers: () => [["hang"]], expected: timedOut },
  { name: "half of the headers ever", params: impatient, answers: () => [[midHeaders, "hang"]], expected: timedOut },
  { name: "half a body ever", params: impatient, answers: (s) => [[halves(answer(s))[0], "hang"]], expected: timedOut },
  {
    name: "half an error ever",
    params: impatient,
    answers: () => [[unavailable.subarray(0, -9), "hang"]],
    expected: timedOut
  },
  { name: "reset before headers", answers: () => [["reset"]], expected: failed },
  { name: "reset within headers", answers: () => [[midHeaders, "reset"]], expected: failed },
  { name: "reset within body", answers: (s) => [[halves(answer(s))[0], "reset"]], expected: failed },
  { name: "reset after the answer", answers: (s) => [[answer(s), "reset"]], expected: good },
  { name: "closed before headers", answers: () => [["close"]], expected: failed },
  { name: "content length too short", answers: (s) => [[lying(s, -10)]], expected: failed },
  { name: "content length too long", answers: (s) => [[lying(s, 10), "close"]], expected: failed },
  { name: "content length too long and open", params: impatient, answers: (s) => [[lying(s, 10)]], expected: timedOut },
  { name: "invalid JSON", answers: (s) => [[whole(s.answer.slice(0, -20))]], expected: failed },
  { name: "JSON of another kind", answers: () => [[whole("[1,2]")]], expected: failed },
  { name: "nothing at all", answers: () => [[whole("")]], expected: failed },
  { name: "not HTTP", answers: () => [[Buffer.from("this is not HTTP\r\n\r\n"), "close"]], expected: failed },
  { name: "a 503", answers: () => [[unavailable]], expected: failed },
  {
    name: "a 429 for long",
    params: { max_retries: 2 },
    answers: () => [[throttled("30")]],
    expected: { status: 429, code: "rate_limit_exceeded", charged: "nothing", retryAfter: "30", within: 3_000 }
  },
  {
    name: "a 429 for a second",
    params: { max_retries: 1 },
    answers: (s) => [[throttled("1")], [answer(s)]],
    expected: { ...good, tries: 2, atLeast: 950 }
  },
  {
    name: "a 503 and then an answer",
    params: { max_retries: 1 },
    answers: (s) => [[unavailable], [answer(s)]],
    expected: { ...good, tries: 2 }
  },
  {
    name: "a reset and then an answer",
    params: { max_retries: 1 },
    answers: (s) => [[halves(answer(s))[0], "reset"], [answer(s)]],
    expected: { ...good, tries: 2 }
  },
  {
    name: "a 503 each time",
    params: { max_retries: 2 },
    answers: () => [[unavailable]],
    expected: { ...failed, tries: 3 }
  }
]

const begin = (shape: Shape) => head(200, { "content-type": shape.streamType, "transfer-encoding": "chunked" })
const said = (shape: Shape, from = 0, to = shape.events.length): ReadonlyArray<Buffer> =>
  shape.events.slice(from, to).map(chunk)
const half = (shape: Shape): Script => [begin(shape), ...said(shape, 0, shape.half)]
const streamed = (shape: Shape, events: ReadonlyArray<Buffer>): Script => [
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

const streams: ReadonlyArray<Omit<Drill, "stream">> = [
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

const drills = [
  ...buffered.map((drill): Drill => ({ ...drill, stream: false })),
  ...streams.map((drill): Drill => ({ ...drill, stream: true }))
]
const cases = [chat, anthropic, messages, bedrock].flatMap((shape) =>
  drills.filter(({ wires }) => wires?.includes(shape.name) ?? true).map((drill) => ({ shape, drill }))
)

/** So many drills at once: most of them wait most of the time. */
const atOnce = 16

describe("failing upstreams", () => {
  let stage: Stage
  const played = new Map<string, Promise<Played>>()

  beforeAll(async () => {
    const upstream = new RawUpstream()
    const database = await openDatabase()
    const gateway = await startGateway({ databaseUrl: database.url })
    stage = { gateway, database, upstream }
    await upstream.script("next", [[whole(chat.answer)]])
    await registerModel(gateway, "next", `${upstream.baseOf("next")}/v1`, {
      input_cost_per_token: 0,
      output_cost_per_token: 0
    })
    await Promise.all(cases.map(({ drill, shape }) => prepare(stage, shape, drill)))
    const { key } = await gateway.key()
    await until(
      () => gateway.request("GET", "/v1/models", { token: key }),
      ({ text }) => cases.every(({ drill, shape }) => text.includes(`"${nameOf(shape, drill)}"`))
    )
    let waiting = cases.map(({ drill, shape }) => {
      const { promise, resolve } = Promise.withResolvers<void>()
      const running = promise.then(() => play(stage, shape, drill))
      played.set(nameOf(shape, drill), running)
      return { resolve, running }
    })
    const next = (): void => {
      const [one, ...others] = waiting
      waiting = others
      one?.resolve()
      one?.running.then(next, next)
    }
    for (let index = 0; index < atOnce; index += 1) next()
  })

  afterAll(async () => {
    await stage.gateway.stop()
    await stage.database.close()
    stage.upstream.stop()
  })

  it.for(cases)("$shape.name, stream $drill.stream: $drill.name", async ({ drill, shape }) => {
    await check(stage, shape, drill, await played.get(nameOf(shape, drill))!)
  })

  it("leaves no reservation and no connection in use", async () => {
    const keyIds = (await Promise.all(played.values())).map(({ keyId }) => keyId)
    const { logged, spent } = await until(
      () => heldBy(stage, keyIds),
      ({ leased }) => leased === "0",
      8_000
    )
    assert.strictEqual(spent, logged)
    assert.isAbove(Number(spent), 0)
    assert.deepStrictEqual(
      stage.upstream.requests.filter(({ outcome }) => outcome === "open"),
      []
    )
    await stage.gateway.stop()
    await until(
      () => Promise.resolve(stage.upstream.openSockets),
      (open) => open === 0,
      2_000
    )
  })
})
