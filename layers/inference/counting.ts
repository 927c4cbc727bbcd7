/** Tokens that nobody reported. */
import { Effect } from "effect"
import { tokenUpperBound } from "#domain/tokens.ts"
import { totalTokens, type Usage, usageOf } from "#domain/usage.ts"
import type { ModelCall } from "#services/inference/ModelCalls.ts"
import type { BufferedAnswer, StreamEnd } from "#services/inference/ProviderRouter.ts"
import type { TokenCounter } from "#services/tokens/TokenCounter.ts"

const nothingUsed: Effect.Effect<Usage | undefined> = Effect.succeed(undefined)

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

  /** What a whole answer consumed. Where the wire knows images or seconds but no tokens, the prompt's are counted. */
  const usageOfAnswer = (call: ModelCall, { texts, usage }: BufferedAnswer): Effect.Effect<Usage> =>
    usage === undefined
      ? estimate(call, texts())
      : usage.estimated && totalTokens(usage) === 0
        ? Effect.map(countPrompt(call), (input) => ({ ...usage, input }))
        : Effect.succeed(usage)

  /** What a stream consumed: as reported, or else counted, if anything was generated at all. */
  const usageOfStream = (call: ModelCall, end: StreamEnd): Effect.Effect<Usage | undefined> => {
    const { failure, usage } = end
    if (usage !== undefined && !usage.estimated) return Effect.succeed(usage)
    const text = end.text()
    // Cut before its own end: what the upstream had reported of the prompt stands, the rest is counted.
    if (usage !== undefined) return Effect.map(countTexts([text]), (output) => ({ ...usage, output, reasoning: 0 }))
    return text === "" && failure !== undefined ? nothingUsed : estimate(call, [text])
  }

  return { countPrompt, estimate, usageOfAnswer, usageOfStream }
}

export type Counting = ReturnType<typeof makeCounting>
