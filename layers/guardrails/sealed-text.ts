/** Secrets in a guardrail's config: sealed before they are stored, opened only to be used. */
import { Effect, Redacted } from "effect"
import { sealedContexts } from "#domain/sealed-contexts.ts"
import type { Secrets } from "#services/security/Secrets.ts"

const form = /^sealed:([0-9a-f]{1,64}):([A-Za-z0-9+/=]{1,4096})$/
const context = sealedContexts.guardrailConfig

/** Whether a field holds a stored secret already. */
export const isSealed = (value: string): boolean => form.test(value)

/** The text of a stored secret. Dies when it was tampered with or its key is not configured. */
export const openSecret = (secrets: Secrets["Service"], stored: string): Effect.Effect<string> => {
  const match = form.exec(stored)
  // Never sealed: written past `validate`, or checked before it is stored.
  if (match === null) return Effect.succeed(stored)
  const sealed = { keyId: match[1]!, bytes: Buffer.from(match[2]!, "base64") }
  return Effect.map(secrets.open(sealed, context), Redacted.value)
}

/** A secret as it is stored. */
export const sealText = (secrets: Secrets["Service"], text: string): string => {
  const { bytes, keyId } = secrets.seal(Redacted.make(text), context)
  return `sealed:${keyId}:${Buffer.from(bytes).toString("base64")}`
}
