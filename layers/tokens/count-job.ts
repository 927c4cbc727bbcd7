/** Runs in a worker thread: the tokens of some texts together. */
import { countTokens } from "#layers/tokens/o200k.ts"

export function* handle(texts: ReadonlyArray<string>): Generator<void, number, void> {
  let count = 0
  for (const text of texts) count += yield* countTokens(text)
  return count
}
