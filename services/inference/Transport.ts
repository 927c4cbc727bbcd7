import { Context } from "effect"
import type { WireHeaders, WireRequest } from "#services/inference/Wire.ts"

/** Why bytes could not be exchanged. The message is the gateway's own wording and names no address. */
export interface TransportFailure {
  /** `refused`: the egress guard does not let the call leave; `broken`: connecting or the connection failed. */
  readonly kind: "refused" | "broken"
  readonly message: string
}

/**
 * Receives one answer. Called synchronously and never before `send` has returned: `head` once, `data` any number of
 * times, then `end` or `failed` once; nothing after `abort`.
 */
export interface TransportReceiver {
  readonly head: (status: number, headers: WireHeaders) => void
  readonly data: (chunk: Buffer) => void
  readonly end: () => void
  readonly failed: (failure: TransportFailure) => void
}

/** A call in flight. */
export interface TransportControl {
  readonly pause: () => void
  readonly resume: () => void
  /** Gives the call up and frees its connection at once. Safe at any time, also twice. */
  readonly abort: () => void
}

/**
 * Bytes to and from upstreams. Connections are bounded per origin and kept alive; redirects are not followed; what the
 * egress guard refuses never connects. Deadlines are the caller's, who knows what counts as progress.
 */
export interface TransportShape {
  readonly send: (origin: string, request: WireRequest, receiver: TransportReceiver) => TransportControl
}

export class Transport extends Context.Service<Transport, TransportShape>()("sluice/inference/Transport") {}
