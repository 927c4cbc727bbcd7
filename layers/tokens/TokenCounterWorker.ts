import { Effect, Layer } from "effect"
import { promptParts } from "#domain/tokens.ts"
import { TokenCounter } from "#services/tokens/TokenCounter.ts"
import { WorkerThreads } from "#services/workers/WorkerThreads.ts"

/** Characters that may wait to be counted: two request bodies of the greatest size. */
const maxCharacters = 64 * 1024 * 1024

/**
 * One worker thread with the o200k_base encoder, started by the first count. Nothing is counted on the event loop:
 * loading the encoder there would hold it up for 0.2 s, and a count costs the thread no more than it would the loop.
 */
export const layer: Layer.Layer<TokenCounter, never, WorkerThreads> = Layer.effect(
  TokenCounter,
  Effect.gen(function* () {
    const threads = yield* WorkerThreads
    const thread = yield* threads.open<ReadonlyArray<string>, number>({
      name: "tokens",
      handler: new URL("./count-job.ts", import.meta.url),
      maxJobs: 1024,
      maxWeight: maxCharacters,
      timeout: 20_000
    })
    const count = (texts: ReadonlyArray<string>) => {
      let characters = 0
      for (const text of texts) characters += text.length
      return characters === 0 ? Effect.succeed(0) : thread.run(texts, characters)
    }
    return {
      count,
      countRequest: (body) => {
        const parts = promptParts(body)
        return Effect.map(count(parts.texts), (tokens) => tokens + parts.fixedTokens)
      }
    }
  })
)
