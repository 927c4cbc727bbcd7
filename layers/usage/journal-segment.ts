import * as fs from "node:fs"

/** Complete lines of a segment, without line feeds. */
export interface SegmentLines {
  readonly lines: ReadonlyArray<string>
  /** Where the next read begins. */
  readonly end: number
  /** The last of the lines has no line feed: its process was killed while it wrote. */
  readonly torn: boolean
}

const CHUNK = 512 * 1024
const LINE_FEED = 10

/** Reads up to `limit` lines between `offset` and `size`; at least one when there are bytes left. */
export const readSegment = (path: string, offset: number, size: number, limit: number): SegmentLines => {
  if (offset >= size) return { lines: [], end: size, torn: false }
  const file = fs.openSync(path, "r")
  try {
    for (let length = CHUNK; ; length *= 2) {
      const wanted = Math.min(length, size - offset)
      const bytes = Buffer.allocUnsafe(wanted)
      let filled = 0
      while (filled < wanted) {
        const count = fs.readSync(file, bytes, filled, wanted - filled, offset + filled)
        if (count === 0) break
        filled += count
      }
      const lines: Array<string> = []
      let start = 0
      while (lines.length < limit) {
        const stop = bytes.subarray(0, filled).indexOf(LINE_FEED, start)
        if (stop === -1) break
        lines.push(bytes.toString("utf8", start, stop))
        start = stop + 1
      }
      if (lines.length > 0) return { lines, end: offset + start, torn: false }
      if (offset + filled >= size || filled < wanted) {
        return { lines: [bytes.toString("utf8", 0, filled)], end: size, torn: true }
      }
    }
  } finally {
    fs.closeSync(file)
  }
}
