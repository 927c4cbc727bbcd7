import { randomBytes, randomFillSync } from "node:crypto"

const pool = Buffer.allocUnsafe(16 * 256)
let used = pool.length

const entropy = (): number => {
  if (used === pool.length) {
    randomFillSync(pool)
    used = 0
  }
  const at = used
  used += 16
  return at
}

/**
 * A row id: UUIDv7 (RFC 9562, section 5.7), so that ids sort by creation. Takes the time in Unix milliseconds from its
 * caller, because only the caller knows which clock rules.
 */
export const uuidv7 = (now: number): string => {
  const at = entropy()
  const bytes = pool.subarray(at, at + 16)
  bytes.writeUIntBE(now, 0, 6)
  bytes[6] = 0x70 | (bytes[6]! & 0x0f)
  bytes[8] = 0x80 | (bytes[8]! & 0x3f)
  const hex = bytes.toString("hex")
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`
}

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i

/** Whether a text can name a row at all: asking PostgreSQL about anything else would be an error, not a miss. */
export const isUuid = (text: string): boolean => uuid.test(text)

/** A fresh API key: `sk-` and 32 random bytes, base64url (decisions.md, section 3). */
export const newApiKey = (): string => `sk-${randomBytes(32).toString("base64url")}`

const requestId = /^[A-Za-z0-9][A-Za-z0-9._:-]{7,127}$/

/** An incoming `X-Request-Id` that is kept as it is (decisions.md, section 4). */
export const isRequestId = (text: string): boolean => requestId.test(text)
