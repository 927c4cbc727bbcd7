import ranksByToken from "gpt-tokenizer/bpeRanks/o200k_base"
import { O200K_TOKEN_SPLIT_REGEX } from "gpt-tokenizer/encodingParams/constants"

/**
 * Byte-pair encoding over the published o200k_base ranks, counting only. The package's own merge is quadratic in the
 * length of a piece and keeps its parts private; this one merges through a heap. Bytes are held as Latin-1 strings: one
 * character a byte, so a map of strings serves as the rank table.
 */
const ranks = new Map<string, number>()
let longestToken = 0

const isAscii = (text: string): boolean => {
  for (let i = 0; i < text.length; i++) if (text.charCodeAt(i) > 127) return false
  return true
}

const bytesOf = (text: string): string => (isAscii(text) ? text : Buffer.from(text, "utf8").toString("latin1"))

ranksByToken.forEach((token, rank) => {
  const bytes = typeof token === "string" ? bytesOf(token) : Buffer.from(token).toString("latin1")
  ranks.set(bytes, rank)
  longestToken = Math.max(longestToken, bytes.length)
})

/** Rank above position in one number, so that the heap yields the lowest rank and, of equals, the leftmost. */
const positions = 2 ** 24

const push = (heap: Array<number>, entry: number): void => {
  let at = heap.length
  heap.push(entry)
  while (at > 0) {
    const parent = (at - 1) >> 1
    if (heap[parent]! <= entry) break
    heap[at] = heap[parent]!
    at = parent
  }
  heap[at] = entry
}

const pop = (heap: Array<number>): number => {
  const least = heap[0]!
  const last = heap.pop()!
  const size = heap.length
  if (size > 0) {
    let at = 0
    for (;;) {
      let child = 2 * at + 1
      if (child >= size) break
      if (child + 1 < size && heap[child + 1]! < heap[child]!) child++
      if (heap[child]! >= last) break
      heap[at] = heap[child]!
      at = child
    }
    heap[at] = last
  }
  return least
}

const merge = (bytes: string): number => {
  const size = bytes.length
  // `next[i]`: where the part that starts at i ends; 0: nothing starts at i any more.
  const next = new Int32Array(size + 1)
  const previous = new Int32Array(size + 1)
  const pairRank = new Int32Array(size).fill(-1)
  const heap: Array<number> = []
  const consider = (start: number): void => {
    const middle = next[start]!
    const end = middle < size ? next[middle]! : 0
    const rank = end > 0 && end - start <= longestToken ? ranks.get(bytes.slice(start, end)) : undefined
    pairRank[start] = rank ?? -1
    if (rank !== undefined) push(heap, rank * positions + start)
  }
  for (let i = 0; i < size; i++) {
    next[i] = i + 1
    previous[i] = i - 1
  }
  previous[size] = size - 1
  for (let i = 0; i < size - 1; i++) consider(i)
  let parts = size
  while (heap.length > 0) {
    const entry = pop(heap)
    const rank = Math.floor(entry / positions)
    const start = entry - rank * positions
    if (pairRank[start] !== rank || next[start] === 0) continue
    const middle = next[start]!
    const end = next[middle]!
    next[start] = end
    next[middle] = 0
    pairRank[middle] = -1
    previous[end] = start
    parts--
    consider(start)
    if (start > 0) consider(previous[start]!)
  }
  return parts
}

const cache = new Map<string, number>()
const maxCached = 50_000
const maxCachedLength = 64

/** A run that the tokenizer would not split is cut into pieces of this length, to bound time and memory. */
const maxPiece = 4096
/** A regular expression is never run over more than this, because a run of one kind needs a stack as long as itself. */
const maxSegment = 1 << 20
/** How many pieces are counted between two yields: well under a millisecond. */
const piecesPerYield = 1024

const countPiece = (piece: string): number => {
  const bytes = bytesOf(piece)
  if (ranks.has(bytes)) return 1
  const known = cache.get(bytes)
  if (known !== undefined) return known
  const count = merge(bytes)
  if (bytes.length <= maxCachedLength) {
    if (cache.size >= maxCached) cache.clear()
    cache.set(bytes, count)
  }
  return count
}

const isHighSurrogate = (code: number): boolean => code >= 0xd800 && code <= 0xdbff

const cutAt = (text: string, end: number): number => (isHighSurrogate(text.charCodeAt(end - 1)) ? end - 1 : end)

/** Where a segment may end without changing the count: before a space that follows something else than space. */
const segmentEnd = (text: string, from: number): number => {
  const limit = from + maxSegment
  if (limit >= text.length) return text.length
  for (let i = limit; i > limit - 65_536; i--) {
    if (text.charCodeAt(i) === 32 && text.charCodeAt(i - 1) > 32 && text.charCodeAt(i - 1) < 127) return i
  }
  return cutAt(text, limit)
}

/** Counts the o200k_base tokens of a text; special tokens count as the text that they are. */
export function* countTokens(text: string): Generator<void, number, void> {
  let count = 0
  let pieces = 0
  for (let from = 0; from < text.length;) {
    const to = segmentEnd(text, from)
    const segment = from === 0 && to === text.length ? text : text.slice(from, to)
    from = to
    for (const [piece] of segment.matchAll(O200K_TOKEN_SPLIT_REGEX)) {
      if (piece.length <= maxPiece) count += countPiece(piece)
      else {
        for (let at = 0; at < piece.length;) {
          const end = cutAt(piece, Math.min(piece.length, at + maxPiece))
          count += countPiece(piece.slice(at, end > at ? end : at + maxPiece))
          at = end > at ? end : at + maxPiece
          yield
        }
      }
      if (++pieces % piecesPerYield === 0) yield
    }
  }
  return count
}
