import { Context } from "effect"

/** The id of the request that the running fiber serves, for audit entries; null outside a request. */
export const CurrentRequestId = Context.Reference<string | null>("sluice/identity/CurrentRequestId", {
  defaultValue: () => null
})
