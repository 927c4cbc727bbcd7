import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { countTokens } from "gpt-tokenizer/encoding/o200k_base"
import { describe } from "vitest"
import { promptParts } from "#domain/tokens.ts"
import * as TokenCounterWorker from "#layers/tokens/TokenCounterWorker.ts"
import * as WorkerThreadsNode from "#layers/workers/WorkerThreadsNode.ts"
import { TokenCounter } from "#services/tokens/TokenCounter.ts"

const live = TokenCounterWorker.layer.pipe(Layer.provide(WorkerThreadsNode.layer))

describe("TokenCounter", () => {
  it.live("counts in a thread, a small text without waiting for a large one, the event loop staying free", () =>
    Effect.gen(function* () {
      const tokens = yield* TokenCounter
      assert.strictEqual(
        yield* tokens.count(["hello world", "", "日本語"]),
        countTokens("hello world") + countTokens("日本語")
      )
      let longest = 0
      let last = performance.now()
      const watch = setInterval(() => {
        longest = Math.max(longest, performance.now() - last)
        last = performance.now()
      }, 5)
      const large = yield* Effect.forkChild(tokens.count(["word ".repeat(2_000_000)]), { startImmediately: true })
      const start = performance.now()
      assert.strictEqual(
        yield* tokens.count(["<|endoftext|>"]),
        countTokens("<|endoftext|>", { disallowedSpecial: new Set() })
      )
      const waited = performance.now() - start
      assert.isUndefined(large.pollUnsafe(), `the small count waited ${waited} ms for the large one`)
      clearInterval(watch)
      assert.isBelow(longest, 250)
    }).pipe(Effect.provide(live))
  )

  it.live("counts a request", () =>
    Effect.gen(function* () {
      const tokens = yield* TokenCounter
      const body = { messages: [{ role: "user", content: "How are you?" }] }
      assert.strictEqual(yield* tokens.countRequest(body), countTokens("How are you?") + promptParts(body).fixedTokens)
    }).pipe(Effect.provide(live))
  )
})
