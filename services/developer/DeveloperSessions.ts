import { Context, Data, type Duration, type Effect, type Redacted } from "effect"
import type { Unauthenticated, Unavailable } from "#domain/errors.ts"
import type { DeveloperPrincipal } from "#domain/principal.ts"

/** A session cannot be made. `message` is one line for the operator. */
export class SessionRefused extends Data.TaggedError("SessionRefused")<{ readonly message: string }> {}

/** A session at its birth: the only moment at which the token exists. */
export interface NewSession {
  readonly id: string
  /** The value of the cookie `gateway_session`. */
  readonly token: Redacted.Redacted<string>
  /** Unix milliseconds. */
  readonly expiresAt: number
  /** A session of somebody with another role than `developer` opens nothing. */
  readonly userRole: string
}

/** Names sessions: one by its row id or its token, or all of a user. */
export type SessionTarget =
  | { readonly id: string }
  | { readonly token: Redacted.Redacted<string> }
  | { readonly userId: string }

/** Sessions of developers, made for an operator's own login page (decisions.md, section 3). */
export class DeveloperSessions extends Context.Service<
  DeveloperSessions,
  {
    /**
     * The developer of a live session. Unknown, expired and revoked sessions, deleted users and those of another role fail
     * alike. Nothing is remembered, so a revocation holds in every process at once.
     */
    readonly authenticate: (token: string) => Effect.Effect<DeveloperPrincipal, Unauthenticated | Unavailable>
    readonly create: (
      userId: string,
      lifetime: Duration.Duration
    ) => Effect.Effect<NewSession, SessionRefused | Unavailable>
    /** Returns how many live sessions it ended. */
    readonly revoke: (target: SessionTarget) => Effect.Effect<number, Unavailable>
  }
>()("sluice/developer/DeveloperSessions") {}
