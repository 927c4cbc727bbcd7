import { hash } from "node:crypto"
import { Clock, Duration, Effect, Layer, Redacted, Schema } from "effect"
import * as jose from "jose"
import { managementUnauthenticated, Unavailable } from "#domain/errors.ts"
import { type AdministratorPrincipal, administratorRoles } from "#domain/principal.ts"
import {
  type AdministratorIdentity,
  AdministratorTokens,
  TokenMintRefused
} from "#services/identity/AdministratorTokens.ts"

/** How administrator tokens are trusted: a shared secret, an issuer's published keys, or both. */
export interface AdministratorTokensOptions {
  /** GATEWAY_JWT_SECRET: HS256. */
  readonly secret?: Redacted.Redacted<string> | undefined
  /** GATEWAY_JWKS_URL: RS256, ES256, EdDSA. */
  readonly jwksUrl?: string | undefined
  readonly issuer?: string | undefined
  readonly audience?: string | undefined
}

/** A token of ours has a few hundred characters; the rest of the room is for claims of other issuers. */
const MAX_TOKEN_LENGTH = 8192
const MAX_JWKS_BYTES = 1024 * 1024
const MAX_REMEMBERED = 1000
/** How long a verified token is trusted without looking at its signature again, so that a withdrawn key counts. */
const REMEMBERED_MS = 60_000
/** After a failed fetch of the issuer's keys, the next one waits. */
const FETCH_PAUSE_MS = 1_000

const symmetric = ["HS256"]
const asymmetric = ["RS256", "ES256", "EdDSA"]

const Claims = Schema.Struct({
  sub: Schema.NonEmptyString.check(Schema.isMaxLength(256)),
  exp: Schema.Finite,
  class: Schema.Literals(["control_plane", "tenant"]),
  role: Schema.Literals(administratorRoles),
  tenant: Schema.optionalKey(Schema.String.check(Schema.isMaxLength(64))),
  organization_id: Schema.optionalKey(Schema.NullOr(Schema.String.check(Schema.isMaxLength(256)))),
  entitlements: Schema.optionalKey(Schema.Array(Schema.String).check(Schema.isMaxLength(64)))
})

const decodeClaims = Schema.decodeUnknownEffect(Claims)

const principalOf = (claims: typeof Claims.Type): AdministratorPrincipal => ({
  _tag: "Administrator",
  subject: claims.sub,
  class: claims.class,
  role: claims.role,
  tenant: claims.tenant ?? "",
  organizationId: claims.organization_id ?? undefined,
  entitlements: new Set(claims.entitlements)
})

const issuerUnavailable = new Unavailable({
  code: "overloaded",
  message: "The keys of the token's issuer cannot be fetched.",
  retryAfter: 1
})

/** `fetch` with a bound on what it reads. */
const boundedFetch: jose.FetchImplementation = async (url, options) => {
  const response = await fetch(url, options)
  const chunks: Array<Uint8Array> = []
  let size = 0
  for await (const chunk of response.body ?? []) {
    size += chunk.length
    if (size > MAX_JWKS_BYTES) throw new Error("The key set is too large")
    chunks.push(chunk)
  }
  return new Response(Buffer.concat(chunks), {
    status: response.status,
    headers: { "content-type": "application/json" }
  })
}

/** Remembers what was verified, by the token's full SHA-256. The oldest go first. */
const makeMemory = () => {
  const verified = new Map<string, { readonly principal: AdministratorPrincipal; readonly until: number }>()
  return {
    get: (key: string, now: number): AdministratorPrincipal | undefined => {
      const known = verified.get(key)
      if (known === undefined) return undefined
      if (now < known.until) return known.principal
      verified.delete(key)
      return undefined
    },
    set: (key: string, principal: AdministratorPrincipal, until: number): void => {
      if (verified.size >= MAX_REMEMBERED) verified.delete(verified.keys().next().value ?? "")
      verified.set(key, { principal, until })
    }
  }
}

/** The issuer's keys could not be fetched. */
class IssuerAway extends Error {}

/** Faults of the token's own: the key set was there, but has no key for it. */
const isTokensFault = (cause: unknown): boolean =>
  cause instanceof jose.errors.JWKSNoMatchingKey ||
  cause instanceof jose.errors.JWKSMultipleMatchingKeys ||
  cause instanceof jose.errors.JOSENotSupported

/**
 * Verifies with jose. The algorithm in a token's header only chooses among the keys that were configured for it, so a
 * public key is never taken for a shared secret. The issuer's keys are cached for 10 minutes; a token with an unknown
 * key id makes them be fetched again at most every 30 s.
 */
export const layer = (options: AdministratorTokensOptions): Layer.Layer<AdministratorTokens> =>
  Layer.effect(
    AdministratorTokens,
    Effect.gen(function* () {
      const clock = yield* Clock.Clock
      const secret = options.secret === undefined ? undefined : Buffer.from(Redacted.value(options.secret))
      const remote =
        options.jwksUrl === undefined
          ? undefined
          : jose.createRemoteJWKSet(new URL(options.jwksUrl), {
              timeoutDuration: 3_000,
              cooldownDuration: 30_000,
              cacheMaxAge: 600_000,
              [jose.customFetch]: boundedFetch
            })
      let pauseUntil = 0
      const remoteKey: jose.JWTVerifyGetKey | undefined =
        remote === undefined
          ? undefined
          : async (header, token) => {
              if (performance.now() < pauseUntil) throw new IssuerAway()
              try {
                return await remote(header, token)
              } catch (cause) {
                if (isTokensFault(cause)) throw cause
                pauseUntil = performance.now() + FETCH_PAUSE_MS
                throw new IssuerAway("key set", { cause })
              }
            }
      const memory = makeMemory()

      const check = async (token: string, now: number): Promise<jose.JWTPayload | undefined> => {
        const alg = jose.decodeProtectedHeader(token).alg ?? ""
        const shared = {
          currentDate: new Date(now),
          requiredClaims: ["exp", "sub"],
          ...(options.issuer === undefined ? {} : { issuer: options.issuer }),
          ...(options.audience === undefined ? {} : { audience: options.audience })
        }
        if (symmetric.includes(alg) && secret !== undefined) {
          return (await jose.jwtVerify(token, secret, { ...shared, algorithms: symmetric })).payload
        }
        if (asymmetric.includes(alg) && remoteKey !== undefined) {
          return (await jose.jwtVerify(token, remoteKey, { ...shared, algorithms: asymmetric })).payload
        }
        return undefined
      }

      const verify = Effect.fnUntraced(function* (token: string) {
        if (token.length > MAX_TOKEN_LENGTH) return yield* managementUnauthenticated
        const now = clock.currentTimeMillisUnsafe()
        const key = hash("sha256", token, "base64")
        const known = memory.get(key, now)
        if (known !== undefined) return known
        const payload = yield* Effect.tryPromise({
          try: () => check(token, now),
          catch: (cause) => (cause instanceof IssuerAway ? issuerUnavailable : managementUnauthenticated)
        })
        if (payload === undefined) return yield* managementUnauthenticated
        const claims = yield* Effect.mapError(decodeClaims(payload), () => managementUnauthenticated)
        const principal = principalOf(claims)
        memory.set(key, principal, Math.min(claims.exp * 1000, now + REMEMBERED_MS))
        return principal
      })

      const mint = Effect.fnUntraced(function* (identity: AdministratorIdentity, lifetime: Duration.Duration) {
        if (secret === undefined) {
          return yield* new TokenMintRefused({ message: "GATEWAY_JWT_SECRET: must be set to sign tokens" })
        }
        const now = Math.floor(clock.currentTimeMillisUnsafe() / 1000)
        const token = new jose.SignJWT({
          class: identity.class,
          role: identity.role,
          tenant: identity.tenant,
          ...(identity.organizationId === undefined ? {} : { organization_id: identity.organizationId }),
          ...(identity.entitlements.size === 0 ? {} : { entitlements: [...identity.entitlements] })
        })
          .setProtectedHeader({ alg: "HS256", typ: "JWT" })
          .setSubject(identity.subject)
          .setIssuedAt(now)
          .setExpirationTime(now + Math.ceil(Duration.toSeconds(lifetime)))
        if (options.issuer !== undefined) token.setIssuer(options.issuer)
        if (options.audience !== undefined) token.setAudience(options.audience)
        return Redacted.make(yield* Effect.promise(() => token.sign(secret)))
      })

      return AdministratorTokens.of({ verify, mint })
    })
  )
