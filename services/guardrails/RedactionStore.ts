import { Context, type Effect } from "effect"
import type { Unavailable } from "#domain/errors.ts"

/** Whose tokens they are: nobody else can resolve them. */
export interface RedactionOwner {
  readonly tenant: string
  /** The row id of the key; null for the master key. */
  readonly keyId: string | null
}

/** A token and the text that it stands for. */
export interface Redaction {
  readonly token: string
  readonly value: string
}

/**
 * What redaction tokens stand for (decisions.md, section 8): bound to tenant and key, encrypted at rest, gone after 24
 * hours.
 */
export class RedactionStore extends Context.Service<
  RedactionStore,
  {
    /** Keeps all of them in one statement; when it resolves, every process can resolve the tokens. */
    readonly keep: (owner: RedactionOwner, redactions: ReadonlyArray<Redaction>) => Effect.Effect<void, Unavailable>
    /** The values of those tokens that are this owner's and have not expired. One statement. */
    readonly resolve: (
      owner: RedactionOwner,
      tokens: ReadonlyArray<string>
    ) => Effect.Effect<ReadonlyMap<string, string>, Unavailable>
    /** Deletes what has expired, in bounded steps; returns how many. Done by itself every few minutes. */
    readonly sweep: Effect.Effect<number, Unavailable>
  }
>()("sluice/guardrails/RedactionStore") {}
