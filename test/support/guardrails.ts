import { randomBytes } from "node:crypto"
import { Layer, Redacted } from "effect"
import { InstanceSecrets } from "#services/security/InstanceSecrets.ts"

/** Secrets that last as long as the test. */
export const instanceSecrets = (): Layer.Layer<InstanceSecrets> =>
  Layer.succeed(InstanceSecrets, {
    masterKey: Redacted.make("unused"),
    masterKeyGenerated: false,
    encryptionKey: Redacted.make(randomBytes(32).toString("base64")),
    previousEncryptionKeys: []
  })
