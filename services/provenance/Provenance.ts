import { Context, type Effect } from "effect"
import type { SqlError } from "effect/sql/SqlError"
import type { JsonObject } from "#domain/json.ts"

/** One entry of a tenant's audit chain. */
export interface ProvenanceEntry {
  /** Dotted: `key.created`, `gen_ai.chat`, `pipeline.run.start`. */
  readonly action: string
  readonly actor: string
  readonly resourceType: string
  readonly resourceId: string
  /** Whose callbacks hear of it besides the tenant's own; not part of the chain. */
  readonly organizationId?: string | null
  readonly requestId: string | null
  readonly payload: JsonObject
  /** Unix milliseconds. */
  readonly createdAt: number
}

/** What a walk along a chain found. */
export interface ChainReport {
  /** Entries that were checked and are as they were written. */
  readonly entries: number
  /** The first entry that is not; undefined when all are. */
  readonly broken: { readonly sequenceNumber: number; readonly why: "missing" | "changed" } | undefined
}

/**
 * The hash chain of what happened in each tenant (decisions.md, section 10.4): gapless sequence numbers, each entry's
 * `payload_hash` the SHA-256 of its canonical payload (RFC 8785) and the previous entry's hash.
 */
export class Provenance extends Context.Service<
  Provenance,
  {
    /**
     * Appends inside the caller's transaction; the chain's head stays locked until that commits. Without a transaction
     * it makes one of its own.
     */
    readonly append: (tenant: string, entries: ReadonlyArray<ProvenanceEntry>) => Effect.Effect<void, SqlError>
    /** Walks the chain as far as it had grown when asked, in pages, without locking it. */
    readonly verify: (tenant: string) => Effect.Effect<ChainReport, SqlError>
  }
>()("sluice/provenance/Provenance") {}
