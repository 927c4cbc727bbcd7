import { Context, type Effect } from "effect"
import { Unavailable } from "#domain/errors.ts"
import type { GuardrailEvent } from "#domain/guardrails.ts"
import type { Nanos } from "#domain/money.ts"
import type { ModelOperation } from "#domain/operations.ts"
import type { Usage } from "#domain/usage.ts"
import type { Charge } from "#services/budgets/BudgetLedger.ts"

/** How an admitted call ended. `cancelled`: the client left; what was generated until then is charged. */
export type OutcomeStatus = "success" | "error" | "blocked" | "cancelled"

/** One admitted model call, finished. The unit that is journalled, counted once and never lost. */
export interface Outcome {
  /** UUIDv7 of the call, unique where the client's request id need not be. */
  readonly callId: string
  readonly requestId: string
  /** Unix milliseconds. Its UTC day is the row's day, whenever the row is written. */
  readonly recordedAt: number
  readonly startedAt: number
  readonly tenant: string
  /** The row id of the key; null for the master key. */
  readonly keyId: string | null
  readonly userId: string | null
  readonly teamId: string | null
  readonly organizationId: string | null
  /** The end user that the request named (`user`), which a customer row may bind. */
  readonly endUserId: string | null
  readonly operation: ModelOperation
  /** The public model name that was asked for. */
  readonly model: string
  readonly provider: string | null
  readonly upstreamModel: string | null
  readonly deploymentId: string | null
  readonly status: OutcomeStatus
  readonly httpStatus: number
  readonly errorCode: string | null
  readonly stream: boolean
  readonly usage: Usage
  readonly cost: Nanos
  readonly priced: boolean
  readonly durationMs: number
  readonly firstByteMs: number | null
  readonly charges: ReadonlyArray<Charge>
  readonly guardrails: ReadonlyArray<GuardrailEvent>
  /** Who called, as audit entries name it, where neither a key nor the master key did. */
  readonly actor?: string
  /** The action of the provenance entry, where it is not `gen_ai.<operation>`. */
  readonly action?: string
}

/** Lifetime totals, or those of a window. */
export interface UsageTotals {
  readonly spend: Nanos
  readonly requests: number
  readonly promptTokens: number
  readonly completionTokens: number
}

/** What new calls are answered while `isFull`: none is served unrecorded. */
export const journalFull = new Unavailable({
  code: "overloaded",
  message: "The gateway cannot record more calls at the moment.",
  retryAfter: 1
})

/**
 * What happened, exactly once (design.md, "UsageLedger"): outcomes go to an append-only journal in the data dir, then in
 * batches to PostgreSQL, each batch one transaction. At start the journal is replayed.
 */
export class UsageLedger extends Context.Service<
  UsageLedger,
  {
    /**
     * Calls back when the outcome is in the journal, so that a killed process cannot lose it. Never fails: `isFull` leaves
     * room for what is in flight.
     */
    readonly append: (outcome: Outcome, written: () => void) => void
    /** The same as an effect. */
    readonly record: (outcome: Outcome) => Effect.Effect<void>
    /** No call may be admitted: its outcome might find no room. */
    readonly isFull: () => boolean
    /** Waits until everything that this process has journalled is in PostgreSQL. */
    readonly flush: Effect.Effect<void, Unavailable>
    /** Lifetime totals of a key; null asks for the whole gateway. Sees this process's own calls. */
    readonly lifetime: (keyId: string | null) => Effect.Effect<UsageTotals, Unavailable>
    /** Totals of the UTC days from `startDay` to `endDay` (YYYY-MM-DD, both included); null asks for the whole gateway. */
    readonly window: (keyId: string | null, startDay: string, endDay: string) => Effect.Effect<UsageTotals, Unavailable>
    /** Lifetime spend per key, for lists of keys. */
    readonly spendOfKeys: (keyIds: ReadonlyArray<string>) => Effect.Effect<ReadonlyMap<string, Nanos>, Unavailable>
  }
>()("sluice/usage/UsageLedger") {}
