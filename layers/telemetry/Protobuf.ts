/** Writes protobuf's wire format into one growing buffer: a batch of spans is some hundred kilobytes, several times a second. */

const varint = 0
const fixed64 = 1
const delimited = 2
const fixed32 = 5

/** The largest length of which a varint is one byte. */
const short = 127

const smallest = 1024
/** What a buffer has grown to is kept for what comes next, up to this. */
const largestKept = 2 * 1024 * 1024

const nanosecondsHigh = 2 ** 32

const nibble = (code: number): number => (code < 58 ? code - 48 : code - 87)

export class Protobuf {
  #buffer = Buffer.allocUnsafe(smallest)
  #at = 0

  /** Bytes written. */
  get size(): number {
    return this.#at
  }

  /** What was written from a place on; good until the next `reset`. */
  bytes(from = 0): Buffer {
    return this.#buffer.subarray(from, this.#at)
  }

  /** Begins anew, with room before what is written for what is only known afterwards: `put` puts it there. */
  reset(room = 0): void {
    if (this.#buffer.length > largestKept) this.#buffer = Buffer.allocUnsafe(smallest)
    this.#room(room - this.#at)
    this.#at = room
  }

  put(bytes: Uint8Array, at: number): void {
    this.#buffer.set(bytes, at)
  }

  #room(bytes: number): void {
    if (this.#at + bytes <= this.#buffer.length) return
    const larger = Buffer.allocUnsafe(Math.max(2 * this.#buffer.length, this.#at + bytes))
    this.#buffer.copy(larger, 0, 0, this.#at)
    this.#buffer = larger
  }

  #varint(value: number): void {
    this.#room(10)
    let rest = value
    while (rest > short) {
      this.#buffer[this.#at++] = (rest % 128) | 0x80
      rest = Math.floor(rest / 128)
    }
    this.#buffer[this.#at++] = rest
  }

  #tag(field: number, type: number): void {
    this.#varint(field * 8 + type)
  }

  /** A whole number from 0 to 2^53. */
  whole(field: number, value: number): void {
    this.#tag(field, varint)
    this.#varint(value)
  }

  double(field: number, value: number): void {
    this.#tag(field, fixed64)
    this.#room(8)
    this.#at = this.#buffer.writeDoubleLE(value, this.#at)
  }

  /** Nanoseconds since 1970, of microseconds. */
  nanoseconds(field: number, microseconds: number): void {
    this.#tag(field, fixed64)
    this.#room(8)
    // In two halves, which is exact and needs no bigint: 1000 * (high * 2^32 + low).
    const low = (microseconds % nanosecondsHigh) * 1000
    const high = Math.floor(microseconds / nanosecondsHigh) * 1000 + Math.floor(low / nanosecondsHigh)
    this.#at = this.#buffer.writeUInt32LE(low % nanosecondsHigh, this.#at)
    this.#at = this.#buffer.writeUInt32LE(high, this.#at)
  }

  flags(field: number, value: number): void {
    this.#tag(field, fixed32)
    this.#room(4)
    this.#at = this.#buffer.writeUInt32LE(value, this.#at)
  }

  /** Digits in lower case. */
  hex(field: number, digits: string): void {
    this.#tag(field, delimited)
    this.#varint(digits.length / 2)
    this.#room(digits.length / 2)
    for (let at = 0; at < digits.length; at += 2) {
      this.#buffer[this.#at++] = (nibble(digits.charCodeAt(at)) << 4) | nibble(digits.charCodeAt(at + 1))
    }
  }

  text(field: number, text: string): void {
    if (text.length <= short && this.#ascii(field, text)) return
    const from = this.open(field)
    this.#room(3 * text.length)
    this.#at += this.#buffer.write(text, this.#at, "utf8")
    this.close(from)
  }

  /** Most texts are short and plain: a loop takes a third of the time of a call into Node. False: this one is not. */
  #ascii(field: number, text: string): boolean {
    const start = this.#at
    this.#tag(field, delimited)
    this.#room(1 + text.length)
    const buffer = this.#buffer
    let at = this.#at
    buffer[at++] = text.length
    for (let i = 0; i < text.length; i++) {
      const code = text.charCodeAt(i)
      if (code > 127) {
        this.#at = start
        return false
      }
      buffer[at++] = code
    }
    this.#at = at
    return true
  }

  /** What stands before a message of a known length. */
  header(field: number, length: number): void {
    this.#tag(field, delimited)
    this.#varint(length)
  }

  raw(bytes: Uint8Array): void {
    this.#room(bytes.length)
    this.#buffer.set(bytes, this.#at)
    this.#at += bytes.length
  }

  /** Begins a message within this one; `close` takes what it returns. */
  open(field: number): number {
    this.#tag(field, delimited)
    this.#room(1)
    return ++this.#at
  }

  close(from: number): void {
    const length = this.#at - from
    if (length <= short) {
      this.#buffer[from - 1] = length
      return
    }
    // A longer length needs more than the byte that was left for it: what follows makes room.
    let more = 0
    for (let rest = length; rest > short; rest = Math.floor(rest / 128)) more += 1
    this.#room(more)
    this.#buffer.copyWithin(from + more, from, this.#at)
    this.#at = from - 1
    this.#varint(length)
    this.#at += length
  }
}
