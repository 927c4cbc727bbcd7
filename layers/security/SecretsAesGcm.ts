import { createCipheriv, createDecipheriv, createHash, randomBytes } from "node:crypto"
import { Effect, Layer, Redacted } from "effect"
import { InstanceSecrets } from "#services/security/InstanceSecrets.ts"
import { type Sealed, Secrets } from "#services/security/Secrets.ts"

const ALGORITHM = "aes-256-gcm"
const NONCE_BYTES = 12
const TAG_BYTES = 16

interface OpeningKey {
  readonly id: string
  readonly bytes: Buffer
}

const openingKey = (encoded: Redacted.Redacted<string>): OpeningKey => {
  const bytes = Buffer.from(Redacted.value(encoded), "base64")
  if (bytes.length !== 32) throw new Error("An encryption key must be 32 bytes, base64")
  // Domain-separated, so that the id is no hash of the key that anything else might publish.
  const id = createHash("sha256").update("sluice encryption key id\0").update(bytes).digest("hex").slice(0, 16)
  return { id, bytes }
}

const open = (keys: ReadonlyMap<string, OpeningKey>, sealed: Sealed, context: string): string => {
  const key = keys.get(sealed.keyId)
  if (key === undefined) throw new Error(`The encryption key ${sealed.keyId} is not configured`)
  const { bytes } = sealed
  if (bytes.length < NONCE_BYTES + TAG_BYTES) throw new Error("A sealed text is too short")
  const decipher = createDecipheriv(ALGORITHM, key.bytes, bytes.subarray(0, NONCE_BYTES), { authTagLength: TAG_BYTES })
  decipher.setAAD(Buffer.from(context))
  decipher.setAuthTag(bytes.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES))
  return decipher.update(bytes.subarray(NONCE_BYTES + TAG_BYTES), undefined, "utf8") + decipher.final("utf8")
}

/**
 * AES-256-GCM with a random 96-bit nonce: nonce, tag and ciphertext in one piece. Seals with the current key of
 * `InstanceSecrets`, opens with it and the previous ones.
 */
export const layer: Layer.Layer<Secrets, never, InstanceSecrets> = Layer.effect(
  Secrets,
  Effect.gen(function* () {
    const instance = yield* InstanceSecrets
    const current = openingKey(instance.encryptionKey)
    const keys = new Map([...instance.previousEncryptionKeys.map(openingKey), current].map((key) => [key.id, key]))
    return Secrets.of({
      keyId: current.id,
      seal: (plaintext, context) => {
        const nonce = randomBytes(NONCE_BYTES)
        const cipher = createCipheriv(ALGORITHM, current.bytes, nonce, { authTagLength: TAG_BYTES })
        cipher.setAAD(Buffer.from(context))
        const body = Buffer.concat([cipher.update(Redacted.value(plaintext), "utf8"), cipher.final()])
        return { bytes: Buffer.concat([nonce, cipher.getAuthTag(), body]), keyId: current.id }
      },
      open: (sealed, context) => Effect.sync(() => Redacted.make(open(keys, sealed, context)))
    })
  })
)
