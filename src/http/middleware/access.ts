/** Authentication and authorization: the credential attests the caller, the endpoint's `Operation` says who may. */
import { Context, Effect, Layer, Option } from "effect"
import { HttpServerRequest, HttpServerResponse } from "effect/http"
import type { HttpApiEndpoint } from "effect/http-api"
import {
  type Access,
  ManagementAccess,
  ManagementCaller,
  ModelAccess,
  ModelCaller,
  Operation,
  RequestId
} from "#api/access.ts"
import {
  forbidden,
  type GatewayError,
  managementUnauthenticated,
  modelUnauthenticated,
  PermissionDenied
} from "#domain/errors.ts"
import { isInstanceAdmin, type ManagementPrincipal, masterKeyPrincipal, tenantOf } from "#domain/principal.ts"
import { answerFailures } from "#http/middleware/enveloped.ts"
import { quotaHeaders } from "#http/quota-headers.ts"
import { BudgetLedger } from "#services/budgets/BudgetLedger.ts"
import { AdministratorTokens } from "#services/identity/AdministratorTokens.ts"
import { MasterKey } from "#services/identity/MasterKey.ts"
import { KeyStore } from "#services/keys/KeyStore.ts"
import { isProvisioned, Tenants } from "#services/tenants/Tenants.ts"

/** The declared operation of an endpoint. An endpoint that declares none keeps the gateway from starting. */
export const operationOf = (endpoint: HttpApiEndpoint.Top) =>
  Option.getOrThrowWith(
    Context.getOption(endpoint.annotations, Operation),
    () => new Error(`${endpoint.method} ${endpoint.path} declares no operation`)
  )

const bearer = /^bearer +(\S+) *$/i

/** The bearer token of a request; undefined where there is none. */
export const bearerToken = (request: HttpServerRequest.HttpServerRequest): string | undefined => {
  const header = request.headers["authorization"]
  return header === undefined ? undefined : bearer.exec(header)?.[1]
}

/**
 * The token of a model call, wherever an official client puts it: `Authorization`, `x-api-key` (Anthropic), or
 * `x-goog-api-key` and, under /v1beta, `?key=` (Google).
 */
const modelToken = (request: HttpServerRequest.HttpServerRequest): string | undefined => {
  const token = bearerToken(request) ?? request.headers["x-api-key"] ?? request.headers["x-goog-api-key"]
  if (token !== undefined || !request.url.startsWith("/v1beta/")) return token
  const at = request.url.indexOf("?")
  return at < 0 ? undefined : (new URLSearchParams(request.url.slice(at)).get("key") ?? undefined)
}

const controlPlaneOnly = new PermissionDenied({
  code: "control_plane_only",
  message: "Only control-plane principals may perform this operation."
})

/** Asked before anything else of a caller, so that no service answers in its own way for a tenant without tables. */
const notProvisioned = forbidden("The caller's tenant is not provisioned.")

/** Undefined when the caller may perform an operation of this access. */
export const refusalOf = (access: Access, principal: ManagementPrincipal): GatewayError | undefined => {
  if (principal._tag === "MasterKey") return undefined
  switch (access) {
    case "administrator_read":
      return undefined
    case "administrator":
      return principal.role === "viewer" ? forbidden() : undefined
    case "instance_admin":
      return isInstanceAdmin(principal) ? undefined : forbidden()
    case "control_plane":
      return principal.class !== "control_plane"
        ? controlPlaneOnly
        : principal.role === "instance_admin"
          ? undefined
          : forbidden()
    case "public":
    case "developer":
    case "model":
    case "client_certificate":
      return forbidden()
  }
}

export const ManagementAccessLive = Layer.effect(
  ManagementAccess,
  Effect.gen(function* () {
    const masterKey = yield* MasterKey
    const tokens = yield* AdministratorTokens
    const tenants = yield* Tenants
    return (effect, { endpoint }) => {
      const { access } = operationOf(endpoint)
      return Effect.gen(function* () {
        const request = yield* HttpServerRequest.HttpServerRequest
        const token = bearerToken(request)
        if (token === undefined || token.startsWith("sk-")) {
          if (token === undefined || !masterKey.matches(token)) return yield* managementUnauthenticated
        }
        const principal = masterKey.matches(token) ? masterKeyPrincipal : yield* tokens.verify(token)
        if (!isProvisioned(tenants, tenantOf(principal))) return yield* notProvisioned
        const refusal = refusalOf(access, principal)
        if (refusal !== undefined) return yield* refusal
        return yield* Effect.provideService(effect, ManagementCaller, principal)
      })
    }
  })
)

export const ModelAccessLive = Layer.effect(
  ModelAccess,
  Effect.gen(function* () {
    const masterKey = yield* MasterKey
    const keys = yield* KeyStore
    const ledger = yield* BudgetLedger
    return (effect, { endpoint }) => {
      if (operationOf(endpoint).access !== "model") throw new Error(`${endpoint.path} is no model operation`)
      return Effect.gen(function* () {
        const request = yield* HttpServerRequest.HttpServerRequest
        const token = modelToken(request)
        if (token === undefined) return yield* modelUnauthenticated
        const known = keys.known(token)
        if (known === undefined && masterKey.matches(token)) {
          return yield* Effect.provideService(effect, ModelCaller, masterKeyPrincipal)
        }
        const key = known ?? (yield* keys.authenticate(token))
        // Answered here and not further out, because the quota headers belong on failures too.
        const response = yield* answerFailures(
          Effect.provideService(effect, ModelCaller, { _tag: "ApiKey", key }),
          yield* RequestId,
          request
        )
        return HttpServerResponse.setHeaders(response, quotaHeaders(ledger.quota(key.limits)))
      })
    }
  })
)
