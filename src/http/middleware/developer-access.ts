/** Authentication of developers: an API key with an owner, or the cookie of a live session. */
import { Effect, Layer } from "effect"
import { HttpServerRequest, HttpServerResponse } from "effect/http"
import { DeveloperAccess, DeveloperCaller, RequestId } from "#api/access.ts"
import { managementUnauthenticated, type Unauthenticated, type Unavailable } from "#domain/errors.ts"
import { type DeveloperPrincipal, type KeyPolicy } from "#domain/principal.ts"
import { bearerToken, operationOf } from "#http/middleware/access.ts"
import { answerFailures } from "#http/middleware/enveloped.ts"
import { quotaHeaders } from "#http/quota-headers.ts"
import { BudgetLedger } from "#services/budgets/BudgetLedger.ts"
import { DeveloperSessions } from "#services/developer/DeveloperSessions.ts"
import { KeyStore } from "#services/keys/KeyStore.ts"
import { isProvisioned, Tenants } from "#services/tenants/Tenants.ts"

/** A developer with the key that attested it; undefined: a session did. */
interface Attested {
  readonly developer: DeveloperPrincipal
  readonly key: KeyPolicy | undefined
}

const cookiePair = /(?:^|;)[ \t]*gateway_session=([^;]*)/

/**
 * The session token of a request. A request that a page of another site made the browser send carries the cookie
 * without its user's will; browsers say so in `Sec-Fetch-Site`.
 */
const sessionToken = (request: HttpServerRequest.HttpServerRequest): string | undefined => {
  if (request.headers["sec-fetch-site"] === "cross-site") return undefined
  return cookiePair.exec(request.headers["cookie"] ?? "")?.[1]?.trim()
}

export const DeveloperAccessLive = Layer.effect(
  DeveloperAccess,
  Effect.gen(function* () {
    const keys = yield* KeyStore
    const sessions = yield* DeveloperSessions
    const ledger = yield* BudgetLedger
    const tenants = yield* Tenants

    const byKey = Effect.fnUntraced(function* (
      token: string
    ): Effect.fn.Return<Attested, Unauthenticated | Unavailable> {
      const key = keys.known(token) ?? (yield* keys.authenticate(token))
      if (key.userId === null || key.userId === "") return yield* managementUnauthenticated
      const { models, tenant, userId } = key
      return { developer: { _tag: "Developer", userId, tenant, ...(models === undefined ? {} : { models }) }, key }
    })

    const bySession = (token: string): Effect.Effect<Attested, Unauthenticated | Unavailable> =>
      Effect.map(sessions.authenticate(token), (developer) => ({ developer, key: undefined }))

    /** An `Authorization` header decides alone; whatever is wrong with the credential, the failure is one and the same. */
    const attest = Effect.fnUntraced(function* (
      request: HttpServerRequest.HttpServerRequest
    ): Effect.fn.Return<Attested, Unauthenticated | Unavailable> {
      const session = sessionToken(request)
      const bearer = bearerToken(request)
      if (request.headers["authorization"] !== undefined) {
        return bearer === undefined ? yield* managementUnauthenticated : yield* byKey(bearer)
      }
      return session === undefined ? yield* managementUnauthenticated : yield* bySession(session)
    })

    return (effect, { endpoint }) => {
      if (operationOf(endpoint).access !== "developer") throw new Error(`${endpoint.path} is no developer operation`)
      return Effect.gen(function* () {
        const request = yield* HttpServerRequest.HttpServerRequest
        const { developer, key } = yield* Effect.catchTag(attest(request), "Unauthenticated", () =>
          Effect.fail(managementUnauthenticated)
        )
        if (!isProvisioned(tenants, developer.tenant)) return yield* managementUnauthenticated
        const served = Effect.provideService(effect, DeveloperCaller, developer)
        if (key === undefined) return yield* served
        // Answered here and not further out, because the quota headers belong on failures too.
        const response = yield* answerFailures(served, yield* RequestId, request)
        return HttpServerResponse.setHeaders(response, quotaHeaders(ledger.quota(key.limits)))
      })
    }
  })
)
