import { Layer } from "effect"
import { Serving, type ServingState } from "#services/operations/Serving.ts"

/** The state of this process, which is the gateway's where it is the only one or the first. */
export const layer = Layer.sync(Serving, () => {
  let current: ServingState = "starting"
  return Serving.of({ state: () => current, enter: (state) => void (current = state) })
})
