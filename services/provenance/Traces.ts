import { Context, type Effect } from "effect"
import type { NotFound, Unavailable } from "#domain/errors.ts"
import type { JsonObject } from "#domain/json.ts"

/** One entry of a tenant's chain, as its callers may see it (model-api.md, "TraceEvent"). */
export interface TraceEvent {
  readonly id: string
  readonly sequenceNumber: number
  readonly action: string
  readonly tenant: string
  readonly payload: JsonObject
  readonly payloadHash: string
  readonly requestId: string | null
  /** Unix milliseconds. */
  readonly createdAt: number
}

/** All that one request id did. */
export interface Session {
  readonly requestId: string
  readonly tenant: string
  /** Unix milliseconds, of the first and the last entry. */
  readonly startedAt: number
  readonly endedAt: number
  readonly events: number
  /** Distinct, sorted. */
  readonly actions: ReadonlyArray<string>
  readonly firstSequenceNumber: number
  readonly lastSequenceNumber: number
}

export interface TracePage {
  readonly limit: number
  readonly offset: number
}

/**
 * Projections of the provenance chain: the entries of model calls, UDFs and evaluations, never those of administrators.
 * The tenant is the attested caller's. A reader sees what its own process has recorded before.
 */
export class Traces extends Context.Service<
  Traces,
  {
    /** The highest sequence number first. */
    readonly list: (tenant: string, page: TracePage) => Effect.Effect<ReadonlyArray<TraceEvent>, Unavailable>
    readonly find: (tenant: string, id: string) => Effect.Effect<TraceEvent, NotFound | Unavailable>
    /** The latest start first. */
    readonly sessions: (tenant: string, page: TracePage) => Effect.Effect<ReadonlyArray<Session>, Unavailable>
  }
>()("sluice/provenance/Traces") {}
