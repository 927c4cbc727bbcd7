/** How long an audio file plays, read from its first bytes: what seconds are charged by where nobody reports them. */

const mpegBitrates = {
  /** MPEG 1, layer III, in kilobits a second. */
  one: [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320],
  /** MPEG 2 and 2.5, layer III. */
  two: [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160]
} as const

/** Bytes of a file's beginning that are enough to tell. */
export const audioHeadBytes = 4096

const wavSeconds = (head: Buffer, size: number): number | undefined => {
  let bytesPerSecond = 0
  for (let at = 12; at + 8 <= head.length;) {
    const name = head.toString("latin1", at, at + 4)
    const length = head.readUInt32LE(at + 4)
    if (name === "fmt " && at + 20 <= head.length) bytesPerSecond = head.readUInt32LE(at + 16)
    if (name === "data") return bytesPerSecond === 0 ? undefined : Math.min(length, size - at - 8) / bytesPerSecond
    at += 8 + length + (length % 2)
  }
  return bytesPerSecond === 0 ? undefined : size / bytesPerSecond
}

/** By the bit rate of the first frame: exact for a constant one. */
const mpegSeconds = (head: Buffer, size: number): number | undefined => {
  const tagged = head.length >= 10 && head.toString("latin1", 0, 3) === "ID3"
  const tag = tagged
    ? 10 + (((head[6]! & 0x7f) << 21) | ((head[7]! & 0x7f) << 14) | ((head[8]! & 0x7f) << 7) | (head[9]! & 0x7f))
    : 0
  for (let at = tag; at + 3 <= head.length; at += 1) {
    if (head[at] !== 0xff || (head[at + 1]! & 0xe6) !== 0xe2) continue
    const rates = (head[at + 1]! & 0x18) === 0x18 ? mpegBitrates.one : mpegBitrates.two
    const kilobits = rates[head[at + 2]! >> 4]
    if (kilobits === undefined || kilobits === 0) continue
    return Math.max(0, size - at) / (kilobits * 125)
  }
  return undefined
}

/** Seconds of a WAV or MP3 file of `size` bytes that begins with `head`; undefined for every other format. */
export const audioSeconds = (head: Buffer, size: number): number | undefined => {
  if (head.length < 12) return undefined
  const magic = head.toString("latin1", 0, 4)
  if (magic === "RIFF") return head.toString("latin1", 8, 12) === "WAVE" ? wavSeconds(head, size) : undefined
  return magic.startsWith("ID3") || head[0] === 0xff ? mpegSeconds(head, size) : undefined
}
