/**
 * Many phrases found in one pass (Aho and Corasick, 1975). Characters are folded before they are compared: full-width and
 * other compatibility forms to their plain ones, any white space to one space, invisible characters to nothing, and case
 * where it does not matter. Time is linear in the text, whatever the phrases.
 */
export interface PhraseMatch {
  /** Index into the phrases. */
  readonly phrase: number
  /** UTF-16 positions in the text. */
  readonly start: number
  readonly end: number
}

export interface PhraseMatcherOptions {
  readonly caseSensitive: boolean
  /** A phrase counts only where it does not continue a word, for scripts that write spaces between words. */
  readonly wholeWord: boolean
}

export interface PhraseMatcher {
  readonly first: (text: string) => PhraseMatch | undefined
  /** Calls back for each match, in the order of their ends, until the callback returns true. */
  readonly each: (text: string, found: (match: PhraseMatch) => boolean) => void
}

const space = 32
/** Folded away entirely. */
const invisible = 0

const foldOne = (code: number, caseSensitive: boolean): number => {
  if (code < 128) {
    if (code >= 65 && code <= 90) return caseSensitive ? code : code + 32
    return code <= space ? (code === 0 ? invisible : space) : code
  }
  if (code >= 0xd800 && code <= 0xdfff) return code
  if (code === 0xad || (code >= 0x200b && code <= 0x200f) || code === 0x2060 || code === 0xfeff) return invisible
  if (code >= 0x202a && code <= 0x202e) return invisible
  const text = String.fromCharCode(code)
  if (/\s/.test(text)) return space
  const plain = text.normalize("NFKC")
  const folded = caseSensitive ? plain : plain.toLowerCase()
  return folded.length === 1 ? folded.charCodeAt(0) : code
}

const tables = new Map<boolean, Uint16Array>()

const foldTable = (caseSensitive: boolean): Uint16Array => {
  let table = tables.get(caseSensitive)
  if (table === undefined) {
    table = Uint16Array.from({ length: 65_536 }, (_, code) => foldOne(code, caseSensitive))
    tables.set(caseSensitive, table)
  }
  return table
}

/** Scripts without spaces between words, or with endings grown onto them: a word boundary there means nothing. */
const spaceless =
  /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]/u
const wordCharacter = /[\p{L}\p{N}\p{M}_]/u

const continuesWord = (inside: number | undefined, outside: number | undefined): boolean => {
  if (inside === undefined || outside === undefined) return false
  const within = String.fromCodePoint(inside)
  const beyond = String.fromCodePoint(outside)
  return wordCharacter.test(within) && wordCharacter.test(beyond) && !spaceless.test(within) && !spaceless.test(beyond)
}

const codePointBefore = (text: string, at: number): number | undefined => {
  if (at <= 0) return undefined
  const low = text.charCodeAt(at - 1)
  return low >= 0xdc00 && low <= 0xdfff && at > 1 ? text.codePointAt(at - 2) : low
}

const startsWord = (text: string, at: number): boolean =>
  !continuesWord(text.codePointAt(at), codePointBefore(text, at))

const endsWord = (text: string, at: number): boolean => !continuesWord(codePointBefore(text, at), text.codePointAt(at))

const foldPhrase = (phrase: string, fold: Uint16Array): Array<number> => {
  const codes: Array<number> = []
  const text = phrase.normalize("NFC").trim()
  for (let i = 0; i < text.length; i++) {
    const code = fold[text.charCodeAt(i)]!
    if (code === invisible || (code === space && codes.at(-1) === space)) continue
    codes.push(code)
  }
  return codes
}

/** Phrases that fold to nothing never match. */
export const makePhraseMatcher = (phrases: ReadonlyArray<string>, options: PhraseMatcherOptions): PhraseMatcher => {
  const fold = foldTable(options.caseSensitive)
  const folded = phrases.map((phrase) => foldPhrase(phrase, fold))
  const children: Array<Map<number, number>> = [new Map()]
  /** The phrase that ends at a state; -1: none. */
  const ends: Array<number> = [-1]
  /** Folded characters without the invisible: needed to find where a match starts. */
  const lengths: Array<number> = []
  folded.forEach((codes, phrase) => {
    lengths.push(codes.length)
    if (codes.length === 0) return
    let state = 0
    for (const code of codes) {
      let next = children[state]!.get(code)
      if (next === undefined) {
        next = children.length
        children.push(new Map())
        ends.push(-1)
        children[state]!.set(code, next)
      }
      state = next
    }
    if (ends[state] === -1) ends[state] = phrase
  })
  const fail = new Int32Array(children.length)
  /** The nearest state along the fail links at which a phrase ends; 0: none. */
  const output = new Int32Array(children.length)
  const queue: Array<number> = Array.from(children[0]!.values())
  for (let head = 0; head < queue.length; head++) {
    const state = queue[head]!
    const fallback = fail[state]!
    output[state] = ends[state] === -1 ? output[fallback]! : state
    for (const [code, child] of children[state]!) {
      let link = fallback
      let target = children[link]!.get(code)
      while (target === undefined && link !== 0) {
        link = fail[link]!
        target = children[link]!.get(code)
      }
      fail[child] = target ?? 0
      queue.push(child)
    }
  }
  const root = new Int32Array(65_536)
  for (const [code, child] of children[0]!) root[code] = child
  const longest = Math.max(1, ...lengths)

  const startOf = (text: string, end: number, length: number): number => {
    let left = length
    let at = end
    let previousSpace = false
    while (at > 0 && left > 0) {
      at--
      const code = fold[text.charCodeAt(at)]!
      if (code === invisible) continue
      if (code === space) {
        if (previousSpace) continue
        previousSpace = true
      } else previousSpace = false
      left--
    }
    return at
  }

  const each = (given: string, found: (match: PhraseMatch) => boolean): void => {
    const text = given
    let state = 0
    let previousSpace = false
    for (let i = 0; i < text.length; i++) {
      const code = fold[text.charCodeAt(i)]!
      if (state === 0) {
        state = root[code]!
        previousSpace = code === space
        if (state === 0) continue
      } else {
        if (code === invisible || (code === space && previousSpace)) continue
        previousSpace = code === space
        let next = children[state]!.get(code)
        while (next === undefined && state !== 0) {
          state = fail[state]!
          next = state === 0 ? root[code]! : children[state]!.get(code)
        }
        state = next ?? 0
      }
      // Once for all phrases that end here: phrases that are ends of one another must not multiply the work.
      if (output[state] === 0 || (options.wholeWord && !endsWord(text, i + 1))) continue
      for (let at = output[state]!; at !== 0; at = output[fail[at]!]!) {
        const phrase = ends[at]!
        const start = startOf(text, i + 1, lengths[phrase]!)
        if (options.wholeWord && !startsWord(text, start)) continue
        if (found({ phrase, start, end: i + 1 })) return
      }
    }
  }

  return {
    each: longest === 0 ? () => undefined : each,
    first: (text) => {
      let first: PhraseMatch | undefined
      each(text, (match) => {
        first = match
        return true
      })
      return first
    }
  }
}
