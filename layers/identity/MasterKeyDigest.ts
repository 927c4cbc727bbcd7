import { hash, timingSafeEqual } from "node:crypto"
import { Effect, Layer, Redacted } from "effect"
import { MasterKey } from "#services/identity/MasterKey.ts"
import { InstanceSecrets } from "#services/security/InstanceSecrets.ts"

const digest = (token: string): Buffer => hash("sha256", token, "buffer")

/** Compares SHA-256 digests in constant time, after the lengths: nearly every API key is told apart without hashing. */
export const layer: Layer.Layer<MasterKey, never, InstanceSecrets> = Layer.effect(
  MasterKey,
  Effect.gen(function* () {
    const key = Redacted.value((yield* InstanceSecrets).masterKey)
    const expected = digest(key)
    const { length } = key
    return MasterKey.of({
      matches: (token) => token.length === length && timingSafeEqual(digest(token), expected)
    })
  })
)
