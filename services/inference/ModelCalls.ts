import { type Cause, Context, type Effect } from "effect"
import type { GatewayError } from "#domain/errors.ts"
import type { JsonObject } from "#domain/json.ts"
import type { ModelOperation } from "#domain/operations.ts"
import type { AdministratorPrincipal, ApiKeyPrincipal, MasterKeyPrincipal } from "#domain/principal.ts"
import type { UploadedFile } from "#services/inference/ProviderRouter.ts"
import type { Span } from "#services/telemetry/Tracing.ts"

/** A model call as a route hands it over: authenticated, its body checked against the contract. */
export interface ModelCall {
  /** An administrator calls as the operator that it is (`agent/chat`): no key, the tenant of its token. */
  readonly caller: ApiKeyPrincipal | MasterKeyPrincipal | AdministratorPrincipal
  readonly requestId: string
  readonly operation: ModelOperation
  readonly model: string
  readonly body: JsonObject
  readonly stream: boolean
  readonly wantsUsage: boolean
  /** A number of tokens that the prompt cannot exceed, known without counting: its bytes, and a flat rate per image. */
  readonly promptBound: number
  /** The client's headers that native shapes forward, names in lower case. */
  readonly headers?: Readonly<Record<string, string>>
  /** Whether `admitUpload` has counted the call among the requests of its key. */
  readonly counted?: boolean
  /** The files of a multipart request; its other fields are in `body`. They outlive the call. */
  readonly files?: ReadonlyArray<UploadedFile>
  /** The action of the call's provenance entry, where it is not `gen_ai.<operation>`. */
  readonly action?: string
  /** What the call is a part of, where that is traced. */
  readonly span?: Span | undefined
}

/** A whole answer. It is settled and journalled: nothing is left to do but to send it. */
export interface CompletedCall {
  readonly _tag: "Completed"
  readonly contentType: string
  readonly body: Buffer
}

/** Where the bytes of a streamed answer go. Called synchronously, never concurrently. */
export interface ByteConsumer {
  readonly chunk: (bytes: Buffer) => void
  /** Exactly once, when the call is settled and journalled; with the failure that cut the stream short. */
  readonly end: (failure: GatewayError | undefined) => void
}

export interface ByteControl {
  readonly pause: () => void
  readonly resume: () => void
  /** The client has left: cancels the upstream and charges what was generated. `end` is not called any more. */
  readonly cancel: () => void
}

/** A streamed answer, its first event received. */
export interface StreamingCall {
  readonly _tag: "Streaming"
  readonly contentType: string
  readonly start: (consumer: ByteConsumer) => ByteControl
}

/** Who waits for a call. Exactly one of the two is called, unless the call is cancelled before. */
export interface CallListener {
  readonly answered: (answer: CompletedCall | StreamingCall) => void
  readonly failed: (cause: Cause.Cause<GatewayError>) => void
}

/**
 * The one way for every model call (design.md): limits and budgets reserved, guardrails, routing, upstream, guardrails,
 * settlement, record. No route reaches a model past it.
 */
export class ModelCalls extends Context.Service<
  ModelCalls,
  {
    /**
     * Makes the call and hands its answer to `respond`, which must not end before a stream it started has ended. Fails
     * with `model_not_found`, `guardrail_blocked`, the 429s of the ledger, `overloaded`, and what the router fails with.
     * However it ends (success, failure, interruption), the reservation is settled or released and an admitted call is
     * recorded: that bracket is why the answer is not simply returned.
     */
    readonly call: <A, E, R>(
      call: ModelCall,
      respond: (answer: CompletedCall | StreamingCall) => Effect.Effect<A, E, R>
    ) => Effect.Effect<A, E | GatewayError, R>
    /**
     * What can be said of a call before its body is read, so that a form which is refused anyway is not taken in: fails
     * with the 429 of a limit of requests, `overloaded` and the 503s. The request is counted here; say so in `counted`.
     */
    readonly admitUpload: (caller: ModelCall["caller"], operation: ModelOperation) => Effect.Effect<void, GatewayError>
    /**
     * The same for the hot path, which is no fiber. Returns what cancels the call when its caller has gone; it does nothing
     * where the call is over. A stream that was answered is the listener's to start or cancel.
     */
    readonly begin: (call: ModelCall, listener: CallListener) => () => void
    /** How many calls are running now, streams included. */
    readonly inFlight: () => number
  }
>()("sluice/inference/ModelCalls") {}
