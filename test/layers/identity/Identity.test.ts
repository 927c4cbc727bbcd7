import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Layer, Redacted, Schedule } from "effect"
import { TestClock } from "effect/testing"
import * as jose from "jose"
import { createServer } from "node:http"
import * as AdministratorTokensJose from "#layers/identity/AdministratorTokensJose.ts"
import * as MasterKeyDigest from "#layers/identity/MasterKeyDigest.ts"
import { AdministratorTokens } from "#services/identity/AdministratorTokens.ts"
import { MasterKey } from "#services/identity/MasterKey.ts"
import { InstanceSecrets } from "#services/security/InstanceSecrets.ts"

const secret = Redacted.make("0123456789abcdef0123456789abcdef")

const tokensWith = (options: AdministratorTokensJose.AdministratorTokensOptions) =>
  Effect.provide(
    Effect.map(AdministratorTokens, (tokens) => tokens),
    AdministratorTokensJose.layer(options)
  )

const identity = {
  subject: "ada",
  class: "tenant",
  role: "org_admin",
  tenant: "acme",
  organizationId: "org-1",
  entitlements: new Set(["cross_tenant_admin"])
} as const

const claims = { sub: "ada", class: "tenant", role: "viewer", tenant: "acme", exp: 4_000_000_000 }

const sign = (payload: jose.JWTPayload, header: jose.JWTHeaderParameters, key: Parameters<jose.SignJWT["sign"]>[0]) =>
  Effect.promise(() => new jose.SignJWT(payload).setProtectedHeader(header).sign(key))

const hs256 = (payload: jose.JWTPayload, key = Redacted.value(secret)) =>
  sign(payload, { alg: "HS256" }, Buffer.from(key))

/** An issuer that publishes what `keys` holds and counts how often it is asked. */
const issuer = Effect.acquireRelease(
  Effect.callback<{
    url: string
    keys: Array<jose.JWK>
    asked: () => number
    fail: (on: boolean) => void
    close: () => void
  }>((resume) => {
    const keys: Array<jose.JWK> = []
    let asked = 0
    let failing = false
    const server = createServer((_, response) => {
      asked++
      if (failing) response.statusCode = 500
      response.end(JSON.stringify({ keys }))
    })
    server.listen(0, "127.0.0.1", () => {
      const address = server.address()
      resume(
        Effect.succeed({
          url: `http://127.0.0.1:${typeof address === "object" ? address?.port : 0}/jwks`,
          keys,
          asked: () => asked,
          fail: (on: boolean) => {
            failing = on
          },
          close: () => server.close()
        })
      )
    })
  }),
  (served) => Effect.sync(served.close)
)

describe("MasterKeyDigest", () => {
  it.effect("matches the master key alone", () =>
    Effect.gen(function* () {
      const key = yield* MasterKey
      assert.isTrue(key.matches("a-master-key-of-mine"))
      for (const wrong of [
        "",
        "a-master-key-of-min",
        "a-master-key-of-minE",
        "a-master-key-of-mine ",
        "A-master-key-of-mine"
      ]) {
        assert.isFalse(key.matches(wrong))
      }
    }).pipe(
      Effect.provide(
        MasterKeyDigest.layer.pipe(
          Layer.provide(
            Layer.succeed(InstanceSecrets, {
              masterKey: Redacted.make("a-master-key-of-mine"),
              masterKeyGenerated: false,
              encryptionKey: Redacted.make(""),
              previousEncryptionKeys: []
            })
          )
        )
      )
    )
  )
})

describe("AdministratorTokensJose", () => {
  it.effect("verifies what it minted, until it expires, remembered or not", () =>
    Effect.gen(function* () {
      const tokens = yield* tokensWith({ secret, issuer: "sluice", audience: "ops" })
      const token = Redacted.value(yield* tokens.mint(identity, Duration.minutes(10)))
      assert.deepStrictEqual(yield* tokens.verify(token), { _tag: "Administrator", ...identity })
      yield* TestClock.adjust("9 minutes")
      assert.strictEqual((yield* tokens.verify(token)).subject, "ada")
      yield* TestClock.adjust("59 seconds")
      assert.strictEqual((yield* tokens.verify(token)).subject, "ada")
      yield* TestClock.adjust("1 second")
      assert.strictEqual((yield* Effect.flip(tokens.verify(token))).code, "invalid_session")
    })
  )

  it.effect("refuses every fault of a token alike", () =>
    Effect.gen(function* () {
      const tokens = yield* tokensWith({ secret, issuer: "sluice", audience: "ops" })
      const good = { ...claims, iss: "sluice", aud: "ops" }
      assert.strictEqual((yield* tokens.verify(yield* hs256(good))).subject, "ada")
      const { exp: _, ...endless } = good
      const { sub: __, ...anonymous } = good
      const token = yield* hs256(good)
      const unsigned = new jose.UnsecuredJWT(good).encode()
      const bad = [
        "",
        "x",
        "a.b.c",
        "eyJhbGciOiJIUzI1NiJ9..",
        token.slice(0, -2),
        `${token}.x`,
        unsigned,
        "z".repeat(100_000),
        yield* hs256(endless),
        yield* hs256(anonymous),
        yield* hs256(good, "f".repeat(32)),
        yield* hs256({ ...good, exp: -1 }),
        yield* hs256({ ...good, nbf: 4_000_000_000 }),
        yield* hs256({ ...good, iss: "other" }),
        yield* hs256({ ...good, aud: "other" }),
        yield* hs256({ ...good, role: "root" }),
        yield* hs256({ ...good, class: "platform" }),
        yield* hs256({ ...good, tenant: 7 }),
        yield* sign(good, { alg: "HS512" }, Buffer.from(Redacted.value(secret).repeat(2)))
      ]
      for (const token of bad) {
        const error = yield* Effect.flip(tokens.verify(token))
        assert.strictEqual(error.status, 401, token.slice(0, 60))
      }
    })
  )

  it.effect("mints nothing without a secret", () =>
    Effect.gen(function* () {
      const tokens = yield* tokensWith({})
      assert.include((yield* Effect.flip(tokens.mint(identity, Duration.minutes(1)))).message, "GATEWAY_JWT_SECRET")
      assert.strictEqual((yield* Effect.flip(tokens.verify(yield* hs256(claims)))).status, 401)
    })
  )

  it.live("verifies by an issuer's keys, and takes no public key for a shared secret", () =>
    Effect.gen(function* () {
      const served = yield* issuer
      const pairs = yield* Effect.promise(() =>
        Promise.all(["RS256", "ES256", "EdDSA"].map((alg) => jose.generateKeyPair(alg, { extractable: true })))
      )
      const publicKeys = yield* Effect.promise(() => Promise.all(pairs.map((pair) => jose.exportJWK(pair.publicKey))))
      publicKeys.forEach((key, index) => served.keys.push({ ...key, kid: `k${index}` }))
      const tokens = yield* tokensWith({ secret, jwksUrl: served.url })
      for (const [index, alg] of ["RS256", "ES256", "EdDSA"].entries()) {
        const token = yield* sign(claims, { alg, kid: `k${index}` }, pairs[index]!.privateKey)
        assert.strictEqual((yield* tokens.verify(token)).tenant, "acme")
        yield* tokens.verify(token)
      }
      assert.strictEqual(served.asked(), 1)
      const pem = yield* Effect.promise(() => jose.exportSPKI(pairs[0]!.publicKey))
      for (const confused of [pem, JSON.stringify(publicKeys[0]), publicKeys[0]!.n ?? ""]) {
        const token = yield* sign(claims, { alg: "HS256", kid: "k0" }, Buffer.from(confused))
        assert.strictEqual((yield* Effect.flip(tokens.verify(token))).status, 401)
      }
      for (let n = 0; n < 20; n++) {
        const token = yield* sign(
          { ...claims, jti: String(n) },
          { alg: "ES256", kid: `unknown-${n}` },
          pairs[1]!.privateKey
        )
        assert.strictEqual((yield* Effect.flip(tokens.verify(token))).status, 401)
      }
      assert.isAtMost(served.asked(), 2)
    })
  )

  it.live("answers 503 while the issuer is away, asking it once a second at most, and recovers", () =>
    Effect.gen(function* () {
      const served = yield* issuer
      const pair = yield* Effect.promise(() => jose.generateKeyPair("ES256", { extractable: true }))
      served.keys.push(yield* Effect.promise(() => jose.exportJWK(pair.publicKey)))
      served.fail(true)
      const tokens = yield* tokensWith({ jwksUrl: served.url })
      const token = yield* sign(claims, { alg: "ES256" }, pair.privateKey)
      for (let n = 0; n < 10; n++) assert.strictEqual((yield* Effect.flip(tokens.verify(token))).status, 503)
      assert.strictEqual(served.asked(), 1)
      assert.strictEqual((yield* Effect.flip(tokens.verify("garbage"))).status, 401)
      served.fail(false)
      const recovered = yield* tokens
        .verify(token)
        .pipe(Effect.retry(Schedule.spaced("50 millis").pipe(Schedule.upTo({ times: 100 }))))
      assert.strictEqual(recovered.subject, "ada")
    })
  )
})
