import { Context } from "effect"

/** `starting` before the API listens, `open` while it does, `draining` from the first moment of a stop. */
export type ServingState = "starting" | "open" | "draining"

/** Where this gateway is in its life, for those who balance load over several. */
export class Serving extends Context.Service<
  Serving,
  {
    readonly state: () => ServingState
    readonly enter: (state: ServingState) => void
  }
>()("sluice/operations/Serving") {}
