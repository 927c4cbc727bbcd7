import { assert, describe, it } from "@effect/vitest"
import { parseSseEvent, SseSplitter } from "#layers/inference/sse.ts"

const stream = (newline: string): Buffer =>
  Buffer.from(
    [
      ": a comment",
      "",
      'data: {"text":"Größe 東京 🚀"}',
      "",
      "event: odd",
      'data: {"a":',
      "data:  1}",
      "",
      "",
      "data",
      "id: 7",
      "",
      "data: last",
      "",
      ""
    ].join(newline)
  )

const expected = [
  { event: undefined, data: '{"text":"Größe 東京 🚀"}' },
  { event: "odd", data: '{"a":\n 1}' },
  { event: undefined, data: "" },
  { event: undefined, data: "last" }
]

const split = (chunks: ReadonlyArray<Buffer>): ReadonlyArray<Buffer> => {
  const splitter = new SseSplitter(1_000)
  const events: Array<Buffer> = []
  for (const chunk of chunks) assert.isTrue(splitter.push(chunk, (raw) => events.push(raw)))
  return [...events, splitter.rest()]
}

const read = (chunks: ReadonlyArray<Buffer>) =>
  split(chunks)
    .map((raw) => parseSseEvent(raw))
    .filter((event) => event.data !== undefined)

describe("SseSplitter", () => {
  for (const [name, newline] of [
    ["LF", "\n"],
    ["CR LF", "\r\n"],
    ["CR", "\r"]
  ] as const) {
    it(`finds the same events wherever the bytes are cut, with ${name}, and keeps every byte`, () => {
      const bytes = stream(newline)
      assert.deepStrictEqual(read([bytes]), expected)
      for (let first = 0; first <= bytes.length; first += 1) {
        for (const width of [1, 2, 7, bytes.length]) {
          const chunks = [bytes.subarray(0, first), bytes.subarray(first, first + width), bytes.subarray(first + width)]
          assert.deepStrictEqual(read(chunks), expected)
          assert.isTrue(Buffer.concat(split(chunks)).equals(bytes))
        }
      }
      const single = [...bytes].map((byte) => Buffer.from([byte]))
      assert.deepStrictEqual(read(single), expected)
    })
  }

  it("ends an event at its blank line at once, without waiting for half a CR LF", () => {
    const splitter = new SseSplitter(1_000)
    const seen: Array<string> = []
    splitter.push(Buffer.from("data: x\r\n\r"), (raw) => seen.push(raw.toString()))
    assert.deepStrictEqual(seen, ["data: x\r\n\r"])
    splitter.push(Buffer.from("\ndata: y\r\n\r\n"), (raw) => seen.push(raw.toString()))
    assert.deepStrictEqual(parseSseEvent(seen[1] ?? ""), { event: undefined, data: "y" })
  })

  it("refuses an event beyond the limit, whole or in parts", () => {
    const large = Buffer.from(`data: ${"x".repeat(200)}\n\n`)
    assert.isFalse(new SseSplitter(100).push(large, () => assert.fail()))
    const splitter = new SseSplitter(100)
    assert.isTrue(splitter.push(large.subarray(0, 90), () => assert.fail()))
    assert.isFalse(splitter.push(large.subarray(90, 120), () => assert.fail()))
  })
})
