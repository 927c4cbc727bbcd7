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
    if (code === invisible || (code === space && (codes.length === 0 || codes.at(-1) === space))) continue
    codes.push(code)
  }
  // What trimming could not see: a space before something that is folded away.
  if (codes.at(-1) === space) codes.pop()
  return codes
}

/** The automaton as a table: one look-up a character. */
interface TransitionTable {
  /** Of each UTF-16 code: a column; codes that occur in no phrase share one. */
  readonly classOf: Uint8Array
  /** A row has 2 to the power of this many columns. */
  readonly bits: number
  /** From a row's start and a column: the start of the next row. */
  readonly next: Int32Array
}

/** 1 MiB a table. */
const maxTransitions = 1 << 18

/** Undefined where the table would be too large. States are numbered so that a parent comes before its children. */
const tableOf = (
  children: ReadonlyArray<ReadonlyMap<number, number>>,
  fail: Int32Array,
  fold: Uint16Array
): TransitionTable | undefined => {
  const columns = new Map<number, number>([[invisible, 1]])
  for (const links of children) {
    for (const code of links.keys()) if (!columns.has(code)) columns.set(code, columns.size + 1)
  }
  const bits = 32 - Math.clz32(columns.size)
  if (columns.size > 255 || children.length << bits > maxTransitions) return undefined
  const next = new Int32Array(children.length << bits)
  const fill = (state: number, afterSpace: boolean): void => {
    const row = state << bits
    if (state !== 0) next.copyWithin(row, fail[state]! << bits, (fail[state]! + 1) << bits)
    for (const [code, child] of children[state]!) next[row + columns.get(code)!] = child << bits
    next[row + 1] = row
    if (afterSpace) next[row + columns.get(space)!] = row
  }
  fill(0, false)
  // Breadth first: what a state falls back to is shorter than itself.
  const queue: Array<readonly [state: number, code: number]> = Array.from(children[0]!, ([code, child]) => [
    child,
    code
  ])
  for (const [state, code] of queue) {
    fill(state, code === space)
    for (const [following, child] of children[state]!) queue.push([child, following])
  }
  const classOf = Uint8Array.from({ length: 65_536 }, (_, code) => columns.get(fold[code]!) ?? 0)
  return { classOf, bits, next }
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
  const table = tableOf(children, fail, fold)

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

  /** Reports the phrases that end at a position in a state; true: enough. */
  const report = (text: string, at: number, state: number, found: (match: PhraseMatch) => boolean): boolean => {
    if (options.wholeWord && !endsWord(text, at + 1)) return false
    // Once for all phrases that end here: phrases that are ends of one another must not multiply the work.
    for (let ending = output[state]!; ending !== 0; ending = output[fail[ending]!]!) {
      const phrase = ends[ending]!
      const start = startOf(text, at + 1, lengths[phrase]!)
      if (options.wholeWord && !startsWord(text, start)) continue
      if (found({ phrase, start, end: at + 1 })) return true
    }
    return false
  }

  const eachByTable = (
    text: string,
    { bits, classOf, next }: TransitionTable,
    found: (match: PhraseMatch) => boolean
  ): void => {
    let row = 0
    for (let i = 0; i < text.length; i++) {
      const code = text.charCodeAt(i)
      row = next[row + classOf[code]!]!
      if (row === 0) continue
      const state = row >> bits
      // What is folded away has nothing end at it.
      if (output[state] !== 0 && fold[code] !== invisible && report(text, i, state, found)) return
    }
  }

  const eachByLinks = (text: string, found: (match: PhraseMatch) => boolean): void => {
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
      if (output[state] !== 0 && report(text, i, state, found)) return
    }
  }

  const each = (text: string, found: (match: PhraseMatch) => boolean): void =>
    table === undefined ? eachByLinks(text, found) : eachByTable(text, table, found)

  return {
    each,
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
