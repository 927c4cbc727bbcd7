/** Deliveries as Standard Webhooks describes them (decisions.md, section 9). */
import { createHmac, randomBytes } from "node:crypto"

const prefix = "whsec_"
const base64 = /^[A-Za-z0-9+/]+={0,2}$/

/** A fresh secret: `whsec_` and 32 random bytes, base64. */
export const newWebhookSecret = (): string => prefix + randomBytes(32).toString("base64")

/** The key that a secret stands for: what is behind `whsec_`, decoded; any other secret as the bytes of its text. */
const keyOf = (secret: string): Buffer => {
  const encoded = secret.startsWith(prefix) ? secret.slice(prefix.length) : ""
  return base64.test(encoded) ? Buffer.from(encoded, "base64") : Buffer.from(secret, "utf8")
}

/** The three headers of one attempt; `now` in Unix milliseconds. */
export const webhookHeaders = (
  secret: string,
  message: { readonly id: string; readonly body: string },
  now: number
): Record<string, string> => {
  const timestamp = String(Math.floor(now / 1000))
  const signature = createHmac("sha256", keyOf(secret)).update(`${message.id}.${timestamp}.${message.body}`)
  return {
    "webhook-id": message.id,
    "webhook-timestamp": timestamp,
    "webhook-signature": `v1,${signature.digest("base64")}`
  }
}

const second = 1000
const minute = 60 * second
const hour = 60 * minute

/** How long after each failed try the next one follows, in milliseconds: ten tries in just under 24 hours. */
export const retryDelays: ReadonlyArray<number> = [
  5 * second,
  30 * second,
  2 * minute,
  10 * minute,
  30 * minute,
  hour,
  3 * hour,
  6 * hour,
  13 * hour
]

/** Tries at most. */
export const maxAttempts = retryDelays.length + 1
