import type { Usage } from "#domain/usage.ts"

/** Characters to a token, roughly. */
const charactersToToken = 4

/**
 * The usage of a stream that has not reported its end: what it reported so far, but not less output than its text must
 * have cost. Marked as estimated where the text decides.
 */
export const unfinishedUsage = (reported: Usage, text: string): Usage => {
  const least = Math.ceil(text.length / charactersToToken)
  return least <= reported.output + reported.reasoning
    ? reported
    : { ...reported, output: least - reported.reasoning, estimated: true }
}
