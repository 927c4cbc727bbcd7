/** Tokens that nobody reported. */
import { Effect } from "effect"
import { tokenUpperBound } from "#domain/tokens.ts"
import { type Usage, usageOf } from "#domain/usage.ts"
import type { ModelCall } from "#services/inference/ModelCalls.ts"
import type { TokenCounter } from "#services/tokens/TokenCounter.ts"

/** Counts that fall back on bounds when the counter is swamped. */
export const makeCounting = (tokens: TokenCounter["Service"]) => {
  /** Exact, unless the counter is swamped: then the bound. */
  const countPrompt = (call: ModelCall): Effect.Effect<number> =>
    Effect.map(
      Effect.catch(tokens.countRequest(call.body), () => Effect.succeed(call.promptBound)),
      (counted) => Math.min(counted, call.promptBound)
    )

  const countTexts = (texts: ReadonlyArray<string>): Effect.Effect<number> =>
    texts.length === 0
      ? Effect.succeed(0)
      : Effect.catch(tokens.count(texts), () =>
          Effect.succeed(texts.reduce((sum, text) => sum + tokenUpperBound(text), 0))
        )

  /** What a call consumed whose upstream reported nothing: its prompt, and the texts it got. */
  const estimate = (call: ModelCall, texts: ReadonlyArray<string>): Effect.Effect<Usage> =>
    Effect.zipWith(countPrompt(call), countTexts(texts), (input, output) => usageOf({ input, output, estimated: true }))

  return { countPrompt, countTexts, estimate }
}

export type Counting = ReturnType<typeof makeCounting>
