import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import * as fs from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as GeneratedSecrets from "#layers/security/GeneratedSecrets.ts"
import { InstanceSecrets } from "#services/security/InstanceSecrets.ts"

const temporaryDirectory = Effect.acquireRelease(
  Effect.sync(() => fs.mkdtempSync(join(tmpdir(), "sluice-secrets-"))),
  (directory) => Effect.sync(() => fs.rmSync(directory, { recursive: true, force: true }))
)

const start = (options: GeneratedSecrets.InstanceSecretsOptions) =>
  Effect.provide(
    Effect.map(InstanceSecrets, (secrets) => secrets),
    Layer.fresh(GeneratedSecrets.layer(options))
  )

describe("GeneratedSecrets", () => {
  it.effect("makes both at the first start, tells so once, and finds them again", () =>
    Effect.gen(function* () {
      const dataDir = join(yield* temporaryDirectory, "data")
      const first = yield* start({ dataDir })
      assert.isTrue(first.masterKeyGenerated)
      assert.strictEqual(Buffer.from(Redacted.value(first.encryptionKey), "base64").length, 32)
      const file = join(dataDir, GeneratedSecrets.SECRETS_FILE)
      assert.strictEqual(fs.statSync(file).mode & 0o777, 0o600)
      fs.chmodSync(file, 0o644)
      const second = yield* start({ dataDir })
      assert.isFalse(second.masterKeyGenerated)
      assert.strictEqual(Redacted.value(second.masterKey), Redacted.value(first.masterKey))
      assert.strictEqual(Redacted.value(second.encryptionKey), Redacted.value(first.encryptionKey))
      assert.strictEqual(fs.statSync(file).mode & 0o777, 0o600)
      assert.deepStrictEqual(fs.readdirSync(dataDir), [GeneratedSecrets.SECRETS_FILE])
    })
  )

  it.effect("writes nothing when both are set, and only what is missing when one is", () =>
    Effect.gen(function* () {
      const dataDir = yield* temporaryDirectory
      const masterKey = Redacted.make("a-master-key-of-mine")
      const encryptionKey = Redacted.make(Buffer.alloc(32, 1).toString("base64"))
      const given = yield* start({ dataDir, masterKey, encryptionKey, previousEncryptionKeys: Redacted.make("a, b,") })
      assert.strictEqual(Redacted.value(given.masterKey), "a-master-key-of-mine")
      assert.deepStrictEqual(given.previousEncryptionKeys.map(Redacted.value), ["a", "b"])
      assert.deepStrictEqual(fs.readdirSync(dataDir), [])
      const half = yield* start({ dataDir, masterKey })
      assert.isFalse(half.masterKeyGenerated)
      const kept = JSON.parse(fs.readFileSync(join(dataDir, GeneratedSecrets.SECRETS_FILE), "utf8"))
      assert.deepStrictEqual(Object.keys(kept), ["encryption_key"])
      const whole = yield* start({ dataDir })
      assert.isTrue(whole.masterKeyGenerated)
      assert.strictEqual(Redacted.value(whole.encryptionKey), Redacted.value(half.encryptionKey))
    })
  )

  it.effect("refuses a damaged file instead of replacing it, and does not quote it", () =>
    Effect.gen(function* () {
      const dataDir = yield* temporaryDirectory
      const file = join(dataDir, GeneratedSecrets.SECRETS_FILE)
      fs.writeFileSync(file, '{"encryption_key": "c2hvcnQ=", secret')
      const error = yield* Effect.flip(start({ dataDir }))
      assert.include(error.message, file)
      assert.notInclude(error.message, "c2hvcnQ=")
      fs.writeFileSync(file, '{"encryption_key": "c2hvcnQ="}')
      assert.include((yield* Effect.flip(start({ dataDir }))).message, "32 bytes")
      assert.include(fs.readFileSync(file, "utf8"), "c2hvcnQ=")
    })
  )
})
