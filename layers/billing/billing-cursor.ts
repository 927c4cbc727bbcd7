import { createHmac, hkdfSync, timingSafeEqual } from "node:crypto"
import { Redacted } from "effect"
import type { InstanceSecrets } from "#services/security/InstanceSecrets.ts"

/** The last record of a page. */
export interface BillingPosition {
  /** YYYY-MM-DD */
  readonly day: string
  readonly org: string
  readonly tenant: string
}

const TAG_BYTES = 16
const MAX_LENGTH = 4096
const day = /^\d{4}-\d{2}-\d{2}$/

const derive = (encoded: Redacted.Redacted<string>): Buffer =>
  Buffer.from(hkdfSync("sha256", Buffer.from(Redacted.value(encoded), "base64"), "", "sluice billing cursor", 32))

const tagOf = (key: Buffer, payload: Buffer): Buffer =>
  createHmac("sha256", key).update(payload).digest().subarray(0, TAG_BYTES)

/** Cursors that only this instance can make; those made before the encryption key was rotated are still good. */
export const makeBillingCursors = (secrets: InstanceSecrets["Service"]) => {
  const keys = [secrets.encryptionKey, ...secrets.previousEncryptionKeys].map(derive)
  return {
    write: (position: BillingPosition): string => {
      const payload = Buffer.from(JSON.stringify([position.day, position.org, position.tenant]))
      return Buffer.concat([tagOf(keys[0]!, payload), payload]).toString("base64url")
    },
    /** Undefined for whatever was not written here. */
    read: (cursor: string): BillingPosition | undefined => {
      if (cursor.length > MAX_LENGTH) return undefined
      const bytes = Buffer.from(cursor, "base64url")
      // The decoder overlooks what is no base64url: only the one spelling that was given out is taken.
      if (bytes.length <= TAG_BYTES || bytes.toString("base64url") !== cursor) return undefined
      const payload = bytes.subarray(TAG_BYTES)
      const tag = bytes.subarray(0, TAG_BYTES)
      if (!keys.some((key) => timingSafeEqual(tagOf(key, payload), tag))) return undefined
      const [at, org, tenant] = JSON.parse(payload.toString()) as ReadonlyArray<string>
      return at === undefined || org === undefined || tenant === undefined || !day.test(at)
        ? undefined
        : { day: at, org, tenant }
    }
  }
}
