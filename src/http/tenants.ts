import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { Api } from "#api/Api.ts"
import { Tenants } from "#services/tenants/Tenants.ts"

export const TenantsHandlers = HttpApiBuilder.group(
  Api,
  "tenants",
  Effect.fn(function* (handlers) {
    const { dormant, slugs } = yield* Tenants
    return handlers.handleAll({ list: () => Effect.succeed({ tenants: slugs, dormant }) })
  })
)
