import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { guardStream } from "#layers/inference/guarded-stream.ts"
import type { GuardrailPolicy } from "#services/guardrails/GuardrailEngine.ts"
import type { StreamConsumer, StreamedAnswer } from "#services/inference/ProviderRouter.ts"

const passing: GuardrailPolicy = {
  pre: false,
  post: true,
  wholeAnswer: false,
  names: [],
  guardrails: [],
  check: (_stage, texts) => Effect.succeed({ texts, events: [], blocked: undefined })
}

const nothing = { usage: undefined, text: () => "", failure: undefined }

describe("guardStream", () => {
  it.effect("does not stay paused when its queue is worked off before the upstream could be paused", () =>
    Effect.gen(function* () {
      let upstream: StreamConsumer | undefined
      let paused = false
      const answer: StreamedAnswer = {
        _tag: "Streamed",
        served: { deploymentId: "d", provider: "p", upstreamModel: "u", price: undefined },
        contentType: "text/event-stream",
        cancel: () => nothing,
        start: (consumer) => {
          upstream = consumer
          return { pause: () => void (paused = true), resume: () => void (paused = false), cancel: () => nothing }
        }
      }
      let text = ""
      const consumer = { chunk: (bytes: Buffer) => void (text += bytes.toString()), end: () => undefined }
      const run = Effect.runForkWith(yield* Effect.context<never>())
      guardStream("chat", answer, passing, [], consumer, run, undefined)
      const event = `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content: "Hello you. " } }] })}\n\n`
      upstream?.chunk(Buffer.from(event.repeat(200)))
      yield* Effect.promise(() => new Promise((resolve) => setTimeout(resolve, 20)))
      assert.isAbove(text.split("Hello").length, 190)
      assert.isFalse(paused)
    })
  )
})
