import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Layer, Redacted } from "effect"
import { randomBytes } from "node:crypto"
import * as SecretsAesGcm from "#layers/security/SecretsAesGcm.ts"
import { InstanceSecrets } from "#services/security/InstanceSecrets.ts"
import { Secrets } from "#services/security/Secrets.ts"

const newKey = () => Redacted.make(randomBytes(32).toString("base64"))

const secretsWith = (current: Redacted.Redacted<string>, previous: ReadonlyArray<Redacted.Redacted<string>> = []) =>
  Effect.provide(
    Effect.map(Secrets, (secrets) => secrets),
    SecretsAesGcm.layer.pipe(
      Layer.provide(
        Layer.succeed(InstanceSecrets, {
          masterKey: Redacted.make("unused"),
          masterKeyGenerated: false,
          encryptionKey: current,
          previousEncryptionKeys: previous
        })
      )
    )
  )

const text = Redacted.make("sk-upstream-ümlaut-💧")

describe("SecretsAesGcm", () => {
  it.effect("opens what it sealed, and never seals the same way twice", () =>
    Effect.gen(function* () {
      const secrets = yield* secretsWith(newKey())
      const sealed = secrets.seal(text, "credential:1")
      assert.strictEqual(Redacted.value(yield* secrets.open(sealed, "credential:1")), Redacted.value(text))
      assert.isFalse(Buffer.from(sealed.bytes).includes("sk-upstream"))
      assert.notDeepEqual(secrets.seal(text, "credential:1").bytes, sealed.bytes)
    })
  )

  it.effect("dies over another context, a changed byte at any place, a cut and an unknown key", () =>
    Effect.gen(function* () {
      const secrets = yield* secretsWith(newKey())
      const sealed = secrets.seal(text, "credential:1")
      const refused = (altered: typeof sealed, context = "credential:1") =>
        Effect.map(Effect.exit(secrets.open(altered, context)), (exit) => assert.isTrue(Exit.isFailure(exit)))
      yield* refused(sealed, "credential:2")
      for (let at = 0; at < sealed.bytes.length; at++) {
        const bytes = Uint8Array.from(sealed.bytes)
        bytes[at] = bytes[at]! ^ 1
        yield* refused({ ...sealed, bytes })
      }
      yield* refused({ ...sealed, bytes: sealed.bytes.subarray(0, 20) })
      yield* refused({ ...sealed, keyId: "0000000000000000" })
    })
  )

  it.effect("opens what a previous key sealed, and seals with the current one", () =>
    Effect.gen(function* () {
      const [old, current] = [newKey(), newKey()]
      const before = (yield* secretsWith(old)).seal(text, "c")
      const rotated = yield* secretsWith(current, [old])
      assert.strictEqual(Redacted.value(yield* rotated.open(before, "c")), Redacted.value(text))
      const after = rotated.seal(text, "c")
      assert.notStrictEqual(after.keyId, before.keyId)
      assert.isTrue(Exit.isFailure(yield* Effect.exit((yield* secretsWith(old)).open(after, "c"))))
    })
  )
})
