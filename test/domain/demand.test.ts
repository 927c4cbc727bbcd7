import { assert, describe, it } from "vitest"
import { audioSeconds } from "#domain/audio.ts"
import { mostUsage } from "#domain/demand.ts"
import { priceOf, totalTokens } from "#domain/usage.ts"

const bounds = { maxOutputTokens: 1000, price: undefined, files: [] }

describe("the most that a call may consume", () => {
  it("follows the operation", () => {
    assert.strictEqual(totalTokens(mostUsage("chat", { max_tokens: 7, n: 2 }, 5, bounds)), 19)
    assert.strictEqual(totalTokens(mostUsage("chat", {}, 5, bounds)), 1005)
    assert.strictEqual(totalTokens(mostUsage("messages", { max_tokens: 9 }, 5, bounds)), 14)
    const config = { maxOutputTokens: 3, candidateCount: 2 }
    assert.strictEqual(totalTokens(mostUsage("generate_content", { generationConfig: config }, 5, bounds)), 11)
    assert.strictEqual(totalTokens(mostUsage("embedding", {}, 5, bounds)), 5)
    assert.strictEqual(totalTokens(mostUsage("count_tokens", {}, 5, bounds)), 0)
    assert.strictEqual(mostUsage("image", { n: 3 }, 5, bounds).images, 3)
    assert.strictEqual(mostUsage("speech", { input: "x".repeat(40), speed: 0.5 }, 5, bounds).seconds, 20)
  })

  it("bounds a transcription by its file's header, or else by its size", () => {
    const files = [
      { size: 5_000, seconds: undefined },
      { size: 10, seconds: 2.5 }
    ]
    assert.strictEqual(mostUsage("transcription", {}, 0, { ...bounds, files }).seconds, 7.5)
  })

  it("counts output tokens of media only where they cost", () => {
    assert.strictEqual(mostUsage("image", {}, 0, { ...bounds, price: priceOf({ cost_per_image: 1 }) }).output, 0)
    const price = priceOf({ output_cost_per_token: 1 })
    assert.strictEqual(mostUsage("image", { n: 2 }, 0, { ...bounds, price }).output, 2000)
  })
})

describe("the seconds of an audio file", () => {
  it("are read from a WAV's format and an MP3's first frame, tag or not", () => {
    const wav = Buffer.alloc(44)
    wav.write("RIFF", 0, "latin1")
    wav.write("WAVEfmt ", 8, "latin1")
    wav.writeUInt32LE(16, 16)
    wav.writeUInt32LE(32_000, 28)
    wav.write("data", 36, "latin1")
    wav.writeUInt32LE(64_000, 40)
    assert.strictEqual(audioSeconds(wav, 64_044), 2)
    const frame = Buffer.concat([Buffer.from([0xff, 0xfb, 0x90, 0x64]), Buffer.alloc(60)])
    assert.strictEqual(audioSeconds(frame, 160_000), 10)
    const tag = Buffer.concat([Buffer.from("ID3"), Buffer.from([3, 0, 0, 0, 0, 0, 20]), Buffer.alloc(20)])
    assert.strictEqual(audioSeconds(Buffer.concat([tag, frame]), 160_030), 10)
  })

  it("are unknown for everything else, and never loop on nonsense", () => {
    for (const text of [
      "",
      "OggS............",
      "RIFF....AVI ....",
      "RIFF\0\0\0\0WAVEfmt \u00ff\u00ff\u00ff\u007f",
      "ID3"
    ]) {
      assert.isUndefined(audioSeconds(Buffer.from(text, "latin1"), 1_000))
    }
    assert.isUndefined(audioSeconds(Buffer.alloc(4096, 0xff), 10_000))
  })
})
