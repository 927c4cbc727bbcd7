import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { ManagementCaller } from "#api/access.ts"
import { Api } from "#api/Api.ts"
import { invalidValue, ValidationFailed } from "#domain/errors.ts"
import { actorOf } from "#domain/principal.ts"
import { ownerFor } from "#http/row-owner.ts"
import { Configuration } from "#services/configuration/Configuration.ts"
import { Tenants } from "#services/tenants/Tenants.ts"

const maxNameLength = 256

const nameFault = (name: string): ValidationFailed | undefined => {
  if (name === "") return invalidValue("body", "An entry needs a name.")
  if (name.length <= maxNameLength) return undefined
  return new ValidationFailed({
    code: "value_too_long",
    message: `The name of an entry is longer than ${maxNameLength} characters.`,
    param: name.slice(0, 64)
  })
}

export const ConfigHandlers = HttpApiBuilder.group(
  Api,
  "config",
  Effect.fn(function* (handlers) {
    const configuration = yield* Configuration
    const tenants = yield* Tenants
    return handlers.handleAll({
      list: Effect.fnUntraced(function* () {
        return yield* configuration.read(yield* ownerFor(tenants, yield* ManagementCaller))
      }),
      update: Effect.fnUntraced(function* ({ payload }) {
        const caller = yield* ManagementCaller
        const owner = yield* ownerFor(tenants, caller)
        const entries = new Map(Object.entries(payload))
        for (const name of entries.keys()) {
          const fault = nameFault(name)
          if (fault !== undefined) return yield* fault
        }
        yield* configuration.update(owner, entries, actorOf(caller))
        return { updated: true }
      })
    })
  })
)
