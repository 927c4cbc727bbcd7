import { randomBytes, randomFillSync } from "node:crypto"

/** Ten random bytes an id. */
const pool = Buffer.allocUnsafe(10 * 400)
let used = pool.length

/** Of the millisecond in which the last id was made: many share one. */
let millisecond = -1
let prefix = ""

const prefixOf = (now: number): string => {
  if (now !== millisecond) {
    const hex = now.toString(16).padStart(12, "0")
    millisecond = now
    prefix = `${hex.slice(0, 8)}-${hex.slice(8)}-7`
  }
  return prefix
}

/**
 * A row id: UUIDv7 (RFC 9562, section 5.7), so that ids sort by creation. Takes the time in Unix milliseconds from its
 * caller, because only the caller knows which clock rules.
 */
export const uuidv7 = (now: number): string => {
  if (used === pool.length) {
    randomFillSync(pool)
    used = 0
  }
  const at = used
  used += 10
  pool[at + 2] = 0x80 | (pool[at + 2]! & 0x3f)
  const hex = pool.toString("hex", at, at + 10)
  return `${prefixOf(now)}${hex.slice(0, 3)}-${hex.slice(4, 8)}-${hex.slice(8)}`
}

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i

/** Whether a text can name a row at all: asking PostgreSQL about anything else would be an error, not a miss. */
export const isUuid = (text: string): boolean => uuid.test(text)

/** A fresh API key: `sk-` and 32 random bytes, base64url (decisions.md, section 3). */
export const newApiKey = (): string => `sk-${randomBytes(32).toString("base64url")}`

const requestId = /^[A-Za-z0-9][A-Za-z0-9._:-]{7,127}$/

/** An incoming `X-Request-Id` that is kept as it is (decisions.md, section 4). */
export const isRequestId = (text: string): boolean => requestId.test(text)

/** The id of a request: the given one, where it is kept, else a fresh one. */
export const requestIdFrom = (given: string | undefined, now: number): string =>
  given !== undefined && isRequestId(given) ? given : uuidv7(now)
