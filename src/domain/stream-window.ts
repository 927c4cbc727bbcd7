/** Some text of a stream that waits for its verdict. */
export interface StreamWindow {
  /** What to check: the end of what already went out, so that nothing hides across a border, and the waiting text. */
  readonly checked: string
  /** How much of `checked`, from its start, already went out. */
  readonly context: number
  /** How much of `checked`, from its end, stays back for the next window, because the text was cut where no sentence ends. */
  readonly heldBack: number
}

/** Holds a stream's text back until a sentence is complete and checked. Not for concurrent use. */
export interface StreamWindows {
  /** Takes the next text; returns a window when there is one to check. It must be released, or the stream given up. */
  readonly push: (delta: string) => StreamWindow | undefined
  /** The rest, at the end of the stream. */
  readonly end: () => StreamWindow | undefined
  /**
   * What may go out of a checked window. `masked` is the checked text as the guardrails left it: where they changed
   * something that reaches into what already went out, what goes out continues after the part that is unchanged.
   */
  readonly release: (window: StreamWindow, masked: string) => string
}

export interface StreamWindowOptions {
  /** Characters that wait for the end of their sentence at most, before they are checked anyway. */
  readonly maxWaiting?: number
  /** Characters of what went out that are checked again, and that stay back after a cut. */
  readonly overlap?: number
}

/** The end of a sentence or of a paragraph; a point counts only before white space, so that no address is cut. */
const sentenceEnd = /(?:[.!?…]["'”’)\]]{0,2}(?=\s)|[。！？]|\n\s*\n)/g

/** Titles end with a point as well, and a name follows. */
const abbreviation = /(?:^|[\s(])(?:\p{L}|Mr|Mrs|Ms|Dr|Prof|Sr|Sra|St|No|Nr|Tel|vs|bzw|z\.B|e\.g|i\.e)\.$/iu

const lastSentenceEnd = (text: string, from: number): number => {
  let end = -1
  sentenceEnd.lastIndex = from
  for (let match = sentenceEnd.exec(text); match !== null; match = sentenceEnd.exec(text)) {
    const at = match.index + match[0].length
    if (match[0] !== "." || !abbreviation.test(text.slice(Math.max(0, at - 12), at))) end = at
  }
  return end
}

/** The start of a word at or before a position, but not before `least`. */
const wordStart = (text: string, at: number, least: number): number => {
  for (let i = at; i > least; i--) if (/\s/.test(text[i - 1]!)) return i
  // No word ends here: cut, but never within a pair of surrogates.
  const low = text.charCodeAt(at)
  return low >= 0xdc00 && low <= 0xdfff ? at - 1 : at
}

export const makeStreamWindows = (options: StreamWindowOptions = {}): StreamWindows => {
  const maxWaiting = options.maxWaiting ?? 2000
  const overlap = Math.min(options.overlap ?? 256, Math.floor(maxWaiting / 2))
  let context = ""
  let waiting = ""
  /** How far `waiting` was searched for the end of a sentence. */
  let searched = 0

  const windowOf = (length: number, heldBack: number): StreamWindow => {
    const checked = context + waiting.slice(0, length)
    waiting = waiting.slice(length - heldBack)
    searched = 0
    return { checked, context: context.length, heldBack }
  }

  return {
    push: (delta) => {
      waiting += delta
      const end = lastSentenceEnd(waiting, Math.max(0, searched - 8))
      if (end > 0) return windowOf(end, 0)
      searched = waiting.length
      if (waiting.length <= maxWaiting) return undefined
      const cut = wordStart(waiting, waiting.length - overlap, Math.max(1, waiting.length - 2 * overlap))
      return windowOf(waiting.length, waiting.length - cut)
    },
    end: () => (waiting === "" ? undefined : windowOf(waiting.length, 0)),
    release: (window, masked) => {
      const { checked, heldBack } = window
      let out: string
      if (masked === checked) out = checked.slice(window.context, checked.length - heldBack)
      else {
        let same = 0
        while (same < window.context && masked[same] === checked[same]) same++
        const tail = heldBack === 0 ? "" : checked.slice(-heldBack)
        if (heldBack > 0 && masked.endsWith(tail) && masked.length - heldBack >= same) {
          out = masked.slice(same, masked.length - heldBack)
        } else {
          // A masked place reaches into what stays back: that part goes out now, masked, and not again.
          out = masked.slice(same)
          waiting = waiting.slice(heldBack)
        }
      }
      const gone = context + out
      context =
        gone.length <= overlap ? gone : gone.slice(wordStart(gone, gone.length - overlap, gone.length - 2 * overlap))
      return out
    }
  }
}
