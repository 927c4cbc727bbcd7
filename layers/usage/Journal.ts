import * as fs from "node:fs"
import { join } from "node:path"
import { decodeOutcome, encodeOutcome, lineOf, textOfLine } from "#layers/usage/outcome-line.ts"
import { readSegment } from "#layers/usage/journal-segment.ts"
import type { Outcome } from "#services/usage/UsageLedger.ts"

/** How a journal behaves; every callback is synchronous and must not throw. */
export interface JournalOptions {
  /** One per worker: two processes never write to the same one. */
  readonly directory: string
  /** Above 7/8 of this many bytes that are not in PostgreSQL yet, no new call is admitted; the rest is for those in flight. */
  readonly limitBytes: number
  /** Default 8 MiB, at most an eighth of the limit. */
  readonly segmentBytes?: number
  /** Outcomes kept in memory for the writer; what comes on top is read back from the file. Default 4096 and 8 MiB. */
  readonly queueLimit?: number
  /** There is something new for `next`. */
  readonly onAppended?: () => void
  /** The disk refused; called once per outage. */
  readonly onFailed?: (cause: unknown) => void
  /** Lines that cannot be read were passed over: torn by a kill, or damaged. */
  readonly onUnreadable?: (segment: string, lines: ReadonlyArray<string>, torn: boolean) => void
}

/** Consecutive outcomes, and where they end. */
export interface JournalBatch {
  readonly outcomes: ReadonlyArray<Outcome>
  readonly segment: number
  readonly end: number
  readonly bytes: number
}

interface Queued {
  readonly outcome: Outcome
  readonly segment: number
  readonly end: number
  readonly bytes: number
}

interface Unwritten {
  readonly outcomes: Array<Outcome>
  readonly lines: Array<string>
  readonly written: Array<() => void>
  chars: number
}

const SEGMENT = /^(\d{12})\.journal$/
const CHECKPOINT = "checkpoint"
const RETRY_MS = 250
const QUEUE_BYTES = 8 * 1024 * 1024
/** A turn that produced more than this is written without waiting for its end. */
const EAGER_CHARS = 1024 * 1024
const PROBE_BYTES = 65_536

const segmentName = (segment: number): string => `${String(segment).padStart(12, "0")}.journal`

const nothingUnwritten = (): Unwritten => ({ outcomes: [], lines: [], written: [], chars: 0 })

/**
 * The append-only file of finished calls: what `append` has confirmed survives `kill -9`, because it is the kernel's by
 * then (it is not synced to the disk: a machine that loses power may lose the last second). All outcomes of one turn of
 * the event loop are one write. Segments are deleted once they are in PostgreSQL.
 */
export class Journal {
  readonly #options: JournalOptions
  readonly #segmentBytes: number
  readonly #queueLimit: number
  /** Sizes of the segments on disk, in order. */
  readonly #segments = new Map<number, number>()
  #current: number
  #size = 0
  #file: number | undefined
  #checkpointFile: number | undefined
  #queue: Array<Queued> = []
  #queueBytes = 0
  /** From here on the file is read; undefined: all that is not acknowledged is in the queue or in a batch. */
  #readFrom: { readonly segment: number; readonly offset: number } | undefined
  #unwritten = nothingUnwritten()
  #scheduled = false
  #failed = false
  #taken: Unwritten | undefined
  #retry: NodeJS.Timeout | undefined
  #appended = 0
  #acknowledged = 0
  #waiters: Array<{ readonly target: number; readonly resume: () => void }> = []
  #closed = false

  /** Throws when the directory cannot be used. Nothing is created in it before the first write. */
  constructor(options: JournalOptions) {
    this.#options = options
    this.#segmentBytes = Math.min(options.segmentBytes ?? 8 * 1024 * 1024, Math.floor(options.limitBytes / 8))
    this.#queueLimit = options.queueLimit ?? 4096
    fs.mkdirSync(options.directory, { recursive: true, mode: 0o700 })
    const checkpoint = this.#readCheckpoint()
    const found = fs
      .readdirSync(options.directory)
      .map((name) => SEGMENT.exec(name)?.[1])
      .filter((digits) => digits !== undefined)
      .map(Number)
      .sort((a, b) => a - b)
    for (const segment of found) {
      if (segment < checkpoint.segment) this.#unlink(segment)
      else this.#segments.set(segment, fs.statSync(this.#path(segment)).size)
    }
    const [first] = this.#segments.keys()
    this.#current = Math.max(checkpoint.segment, found.at(-1) ?? 0) + 1
    if (first !== undefined) {
      const offset = first === checkpoint.segment ? checkpoint.offset : 0
      this.#readFrom = { segment: first, offset }
      for (const size of this.#segments.values()) this.#appended += size
      this.#appended -= offset
    }
  }

  /** Bytes that are not in PostgreSQL yet. */
  get backlog(): number {
    return this.#appended - this.#acknowledged + this.#unwritten.chars
  }

  /** No call may be admitted: its outcome might find no room, or the disk refuses writes. */
  get full(): boolean {
    return this.#failed || this.backlog >= this.#options.limitBytes * 0.875
  }

  /** Outcomes held in memory. */
  get queued(): number {
    return this.#queue.length
  }

  /** Whether `next` has something to give. */
  get ready(): boolean {
    return this.#queue.length > 0 || this.#readFrom !== undefined || this.#mustKeepElsewhere
  }

  /** There are outcomes in the file that are not in memory: a backlog. */
  get behind(): boolean {
    return this.#readFrom !== undefined
  }

  get #mustKeepElsewhere(): boolean {
    return this.#failed && this.#taken === undefined && this.#unwritten.lines.length > 0
  }

  /** `written` is called when the outcome is in the file. */
  append(outcome: Outcome, written: () => void): void {
    const line = lineOf(encodeOutcome(outcome))
    this.#unwritten.outcomes.push(outcome)
    this.#unwritten.lines.push(line)
    this.#unwritten.written.push(written)
    this.#unwritten.chars += line.length
    if (this.#unwritten.chars > EAGER_CHARS && !this.#failed) return this.write()
    if (this.#scheduled) return
    this.#scheduled = true
    setImmediate(() => {
      this.#scheduled = false
      if (!this.#failed) this.write()
    })
  }

  /** Writes what this turn has appended so far. */
  write(): void {
    const { lines, outcomes, written } = this.#unwritten
    if (lines.length === 0 || this.#taken !== undefined || this.#closed) return
    const bytes = Buffer.from(lines.join(""))
    try {
      this.#writeBytes(bytes)
    } catch (cause) {
      this.#onWriteFailed(cause)
      return
    }
    this.#failed = false
    this.#unwritten = nothingUnwritten()
    this.#appended += bytes.length
    let end = this.#size - bytes.length
    for (let i = 0; i < lines.length; i++) {
      const length = Buffer.byteLength(lines[i]!)
      if (this.#readFrom === undefined) {
        if (this.#queue.length < this.#queueLimit && this.#queueBytes < QUEUE_BYTES) {
          this.#queue.push({ outcome: outcomes[i]!, segment: this.#current, end: end + length, bytes: length })
          this.#queueBytes += length
        } else this.#readFrom = { segment: this.#current, offset: end }
      }
      end += length
    }
    for (const resume of written) resume()
    this.#options.onAppended?.()
  }

  /** The oldest outcomes that are not acknowledged; undefined when there are none. One batch at a time. */
  next(limit: number): JournalBatch | undefined {
    if (this.#queue.length > 0) {
      const taken = this.#queue.splice(0, limit)
      const last = taken[taken.length - 1]!
      const bytes = taken.reduce((sum, queued) => sum + queued.bytes, 0)
      this.#queueBytes -= bytes
      const outcomes = taken.map((queued) => queued.outcome)
      return { outcomes, segment: last.segment, end: last.end, bytes }
    }
    if (this.#readFrom === undefined) return undefined
    const { offset, segment } = this.#readFrom
    const size = this.#segments.get(segment) ?? 0
    const read = readSegment(this.#path(segment), offset, size, limit)
    const outcomes: Array<Outcome> = []
    const unreadable: Array<string> = []
    for (const line of read.lines) {
      if (line === "") continue
      const text = textOfLine(line)
      const outcome = text === undefined ? undefined : decodeOutcome(text)
      if (outcome === undefined) unreadable.push(line)
      else outcomes.push(outcome)
    }
    if (unreadable.length > 0) this.#options.onUnreadable?.(segmentName(segment), unreadable, read.torn)
    const following = [...this.#segments.keys()].find((other) => other > segment)
    if (read.end < size) this.#readFrom = { segment, offset: read.end }
    else this.#readFrom = following === undefined ? undefined : { segment: following, offset: 0 }
    return { outcomes, segment, end: read.end, bytes: read.end - offset }
  }

  /** The batch is in PostgreSQL: it will not be given out again, not even to the next process. */
  acknowledge(batch: JournalBatch): void {
    this.#acknowledged += batch.bytes
    try {
      this.#writeCheckpoint(batch.segment, batch.end)
      for (const [segment, size] of this.#segments) {
        const drained = segment < batch.segment || (segment === batch.segment && batch.end >= size)
        if (!drained || (segment === this.#current && this.#file !== undefined)) break
        this.#unlink(segment)
        this.#segments.delete(segment)
      }
    } catch (cause) {
      // Replaying what is already there is harmless; it costs time at the next start only.
      this.#options.onFailed?.(cause)
    }
    this.#wakeWaiters()
  }

  /** Outcomes that the disk refused, for another way to keep them; none unless a write has failed. */
  takeUnwritten(): ReadonlyArray<Outcome> {
    if (!this.#mustKeepElsewhere) return []
    this.#taken = this.#unwritten
    this.#unwritten = nothingUnwritten()
    return this.#taken.outcomes
  }

  /** Ends `takeUnwritten`: either they are kept elsewhere, or the disk is tried again. */
  settleUnwritten(kept: boolean): void {
    const taken = this.#taken
    if (taken === undefined) return
    this.#taken = undefined
    if (kept) {
      for (const resume of taken.written) resume()
      this.#wakeWaiters()
      return this.#retryLater()
    }
    const since = this.#unwritten
    this.#unwritten = {
      outcomes: taken.outcomes.concat(since.outcomes),
      lines: taken.lines.concat(since.lines),
      written: taken.written.concat(since.written),
      chars: taken.chars + since.chars
    }
  }

  /** Calls back when all that was appended before is acknowledged. Returns a function that forgets the callback. */
  onDrained(resume: () => void): () => void {
    this.write()
    const waiter = { target: this.#appended, resume }
    this.#waiters.push(waiter)
    this.#wakeWaiters()
    return () => {
      this.#waiters = this.#waiters.filter((other) => other !== waiter)
    }
  }

  /** Writes what is left and closes the files; a journal that is all in PostgreSQL leaves nothing behind. */
  close(): void {
    if (this.#closed) return
    this.write()
    this.#closed = true
    clearTimeout(this.#retry)
    if (this.#file !== undefined) fs.closeSync(this.#file)
    if (this.#checkpointFile !== undefined) fs.closeSync(this.#checkpointFile)
    if (this.backlog > 0) return
    for (const segment of this.#segments.keys()) this.#unlink(segment)
    fs.rmSync(join(this.#options.directory, CHECKPOINT), { force: true })
  }

  #path(segment: number): string {
    return join(this.#options.directory, segmentName(segment))
  }

  #unlink(segment: number): void {
    fs.rmSync(this.#path(segment), { force: true })
  }

  #writeBytes(bytes: Buffer): void {
    if (this.#file !== undefined && this.#size > 0 && this.#size + bytes.length > this.#segmentBytes) {
      const full = this.#file
      this.#file = undefined
      this.#current += 1
      fs.closeSync(full)
    }
    if (this.#file === undefined) {
      this.#file = fs.openSync(this.#path(this.#current), "ax", 0o600)
      this.#size = 0
      this.#segments.set(this.#current, 0)
    }
    for (let done = 0; done < bytes.length;) done += fs.writeSync(this.#file, bytes, done)
    this.#size += bytes.length
    this.#segments.set(this.#current, this.#size)
  }

  #onWriteFailed(cause: unknown): void {
    if (this.#file !== undefined) {
      try {
        fs.ftruncateSync(this.#file, this.#size)
      } catch {
        // The half line stays; a reader passes over it, and the outcomes go whole into the next segment.
        this.#abandonSegment()
      }
    } else if ((cause as NodeJS.ErrnoException).code === "EEXIST") this.#current += 1
    if (!this.#failed) this.#options.onFailed?.(cause)
    this.#failed = true
    this.#retryLater()
    this.#options.onAppended?.()
  }

  #retryLater(): void {
    clearTimeout(this.#retry)
    this.#retry = setTimeout(() => {
      if (!this.#failed || this.#closed) return
      if (this.#taken !== undefined) this.#retryLater()
      else if (this.#unwritten.lines.length > 0) this.write()
      else this.#probe()
    }, RETRY_MS)
    this.#retry.unref()
  }

  /** Asks the disk for room when no outcome is waiting to be written. Blank lines mean nothing to a reader. */
  #probe(): void {
    try {
      this.#writeBytes(Buffer.alloc(PROBE_BYTES, "\n"))
      this.#appended += PROBE_BYTES
      this.#failed = false
      this.#readFrom ??= { segment: this.#current, offset: this.#size - PROBE_BYTES }
    } catch (cause) {
      this.#onWriteFailed(cause)
    }
  }

  #abandonSegment(): void {
    try {
      if (this.#file !== undefined) fs.closeSync(this.#file)
    } catch {
      // Closed all the same, as far as this process can tell.
    }
    this.#file = undefined
    this.#current += 1
  }

  #readCheckpoint(): { readonly segment: number; readonly offset: number } {
    try {
      const line = fs.readFileSync(join(this.#options.directory, CHECKPOINT), "utf8").split("\n")[0] ?? ""
      const [segment, offset] = JSON.parse(textOfLine(line) ?? "[]") as [number?, number?]
      return { segment: segment ?? 0, offset: offset ?? 0 }
    } catch {
      return { segment: 0, offset: 0 }
    }
  }

  #writeCheckpoint(segment: number, offset: number): void {
    this.#checkpointFile ??= fs.openSync(
      join(this.#options.directory, CHECKPOINT),
      fs.constants.O_RDWR | fs.constants.O_CREAT,
      0o600
    )
    // One write of constant length: a reader finds the old one or the new one.
    fs.writeSync(this.#checkpointFile, lineOf(`[${segment},${offset}]`.padEnd(40)), 0)
  }

  #wakeWaiters(): void {
    if (this.#waiters.length === 0 || this.#unwritten.lines.length > 0 || this.#taken !== undefined) return
    const [due, later] = [true, false].map((is) =>
      this.#waiters.filter((waiter) => waiter.target <= this.#acknowledged === is)
    )
    this.#waiters = later!
    for (const waiter of due!) waiter.resume()
  }
}
