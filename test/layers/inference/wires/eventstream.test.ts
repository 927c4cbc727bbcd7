import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import { type Frame, FrameSplitter } from "#layers/inference/wires/eventstream.ts"
import { frame, prelude, rawFrame } from "#test/layers/inference/wires/frames.ts"

const split = (chunks: ReadonlyArray<Buffer>) => {
  const splitter = new FrameSplitter()
  const frames: Array<Frame> = []
  for (const chunk of chunks) {
    const fault = splitter.push(chunk, (one) => frames.push(one))
    if (fault !== undefined) return { frames, fault, broken: splitter.broken }
  }
  return { frames, fault: undefined, broken: splitter.broken }
}

const one = frame({ ":event-type": "first", ":message-type": "event" }, { größe: "12 🚢" })
const two = frame({ ":event-type": "second" }, {})

const flipped = (bytes: Buffer, at: number): Buffer => {
  const copy = Buffer.from(bytes)
  copy[at] = copy[at]! ^ 1
  return copy
}

describe("FrameSplitter", () => {
  it("reads frames as AWS writes them", () => {
    // A frame without headers and payload, with checksums known from elsewhere.
    const empty = Buffer.from("000000100000000005c248eb7d98c8ff", "hex")
    assert.strictEqual(split([empty]).frames.length, 1)
    assert.isTrue(rawFrame(Buffer.alloc(0), Buffer.alloc(0)).equals(empty))
    const { frames } = split([Buffer.concat([one, two])])
    assert.strictEqual(frames[0]?.headers.get(":event-type"), "first")
    assert.strictEqual(frames[0]?.payload.toString(), '{"größe":"12 🚢"}')
    assert.strictEqual(frames[1]?.headers.get(":event-type"), "second")
  })

  it("skips header values of every other type", () => {
    const headers = Buffer.concat([
      Buffer.from([1, 0x61, 0, 1, 0x62, 1]),
      Buffer.from([1, 0x63, 2, 9, 1, 0x64, 3, 0, 9, 1, 0x65, 4, 0, 0, 0, 9]),
      Buffer.from([1, 0x66, 5, ...Buffer.alloc(8), 1, 0x67, 6, 0, 2, 9, 9, 1, 0x68, 8, ...Buffer.alloc(8)]),
      Buffer.from([1, 0x69, 9, ...Buffer.alloc(16), 1, 0x6a, 7, 0, 2, 0x6f, 0x6b])
    ])
    const { frames } = split([rawFrame(headers, Buffer.alloc(0))])
    assert.deepStrictEqual([...frames[0]!.headers], [["j", "ok"]])
  })

  it("finds every damaged byte", () => {
    for (let at = 0; at < one.length; at += 1) {
      const { broken, fault, frames } = split([flipped(one, at)])
      assert.strictEqual(frames.length, 0, `byte ${at}`)
      assert.isTrue(fault !== undefined || broken, `byte ${at}`)
    }
  })

  it("refuses lengths that are too large or contradict, and headers that run over", () => {
    const lies = [prelude(0xffffffff, 0), prelude(20_000_000, 10_000_000), prelude(10, 0), prelude(20, 8)]
    for (const lie of lies) assert.isString(split([lie]).fault)
    for (const headers of ["01", "0161", "016107", "0161070005", "01610700056f6b", "0161ff", "ff61"]) {
      assert.isString(split([rawFrame(Buffer.from(headers, "hex"), Buffer.alloc(0))]).fault, headers)
    }
  })

  it.prop(
    "gives the same frames however the bytes are cut",
    [Schema.Array(Schema.String), Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 40 }))],
    ([texts, step]) => {
      const bytes = Buffer.concat(texts.map((text) => frame({ ":event-type": "x" }, text)))
      const chunks: Array<Buffer> = []
      for (let at = 0; at < bytes.length; at += step) chunks.push(bytes.subarray(at, at + step))
      const { broken, frames } = split(chunks)
      assert.isFalse(broken)
      assert.deepStrictEqual(
        frames.map((one) => one.payload.toString()),
        texts.map((text) => JSON.stringify(text))
      )
    }
  )
})
