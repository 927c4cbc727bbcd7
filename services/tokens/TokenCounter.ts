import { Context, type Effect } from "effect"
import type { Unavailable } from "#domain/errors.ts"
import type { JsonObject } from "#domain/json.ts"

/**
 * Counts tokens with o200k_base, off the event loop, special tokens as plain text. Exact for every text without a run of
 * more than 4096 characters that the tokenizer would not split; longer runs may count a token more per 4096 characters.
 * Fails with `overloaded` when too much waits, or when a count does not end in its time: the caller may fall back on
 * `tokenUpperBound`.
 */
export class TokenCounter extends Context.Service<
  TokenCounter,
  {
    /** The tokens of all the texts together, each counted by itself. */
    readonly count: (texts: ReadonlyArray<string>) => Effect.Effect<number, Unavailable>
    /** The prompt tokens of a model request: `promptParts`, counted. */
    readonly countRequest: (body: JsonObject) => Effect.Effect<number, Unavailable>
  }
>()("sluice/tokens/TokenCounter") {}
