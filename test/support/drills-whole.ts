/** Whole answers that fail. */
import type { Shape } from "#test/support/drill-shapes.ts"
import type { Drill } from "#test/support/drills.ts"
import { head, whole } from "#test/support/RawUpstream.ts"

export const failed = { status: 502, code: "upstream_error", charged: "nothing" } as const
export const timedOut = {
  status: 504,
  code: "upstream_timeout",
  charged: "nothing",
  atLeast: 450,
  within: 4_000
} as const
export const good = { status: 200, charged: "reported" } as const
export const impatient = { timeout: 0.5, stream_timeout: 0.5 }

export const answer = (shape: Shape): Buffer => whole(shape.answer)
const halves = (bytes: Buffer): readonly [Buffer, Buffer] => [
  bytes.subarray(0, bytes.length - 60),
  bytes.subarray(bytes.length - 60)
]
export const unavailable = whole('{"error":{"message":"Try later.","type":"server_error"}}', 503)
export const throttled = (after: string) => whole('{"error":{"message":"Too many."}}', 429, { "retry-after": after })
export const midHeaders = Buffer.from("HTTP/1.1 200 OK\r\ncontent-type: application/js")
/** The same answer with a length that is off. */
const lying = (shape: Shape, by: number): Buffer =>
  Buffer.concat([
    head(200, { "content-type": "application/json", "content-length": Buffer.byteLength(shape.answer) + by }),
    Buffer.from(shape.answer)
  ])

export const wholeDrills: ReadonlyArray<Omit<Drill, "stream">> = [
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
  {
    name: "compressed, unasked",
    answers: (s) => [[whole(s.answer, 200, { "content-encoding": "gzip" })]],
    expected: failed
  },
  { name: "a redirect", answers: () => [[whole("{}", 302, { location: "/elsewhere" })]], expected: failed },
  {
    name: "a hint before the answer",
    answers: (s) => [[Buffer.from("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"), answer(s)]],
    expected: good
  },
  {
    name: "headers without end",
    answers: () => [[Buffer.from(`HTTP/1.1 200 OK\r\nx-filler: ${"x".repeat(300_000)}`), "hang"]],
    expected: failed
  },
  { name: "a refused credential", answers: () => [[whole('{"error":{"message":"No."}}', 401)]], expected: failed },
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
