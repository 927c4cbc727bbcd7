/** The sandbox's tokens: runs of at most six letters or digits with the space before them, or one other character. */
const token = / ?[\p{L}\p{N}_]{1,6}|\s|[^\s\p{L}\p{N}_]/gu

/** Cuts a text into tokens; joined they are the text. */
export const tokensOf = (text: string): ReadonlyArray<string> => text.match(token) ?? []

/** Counts without keeping them. */
export const countTokens = (text: string): number => {
  let count = 0
  for (const _ of text.matchAll(token)) count += 1
  return count
}
