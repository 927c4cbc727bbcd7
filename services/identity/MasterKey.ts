import { Context } from "effect"

/** The bearer token of the caller who may do everything (decisions.md, section 3). */
export class MasterKey extends Context.Service<
  MasterKey,
  {
    /** Whether a token is the master key. Takes the same time wherever the two differ; only the length can be learnt. */
    readonly matches: (token: string) => boolean
  }
>()("sluice/identity/MasterKey") {}
