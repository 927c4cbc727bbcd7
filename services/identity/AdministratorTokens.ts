import { Context, Data, type Duration, type Effect, type Redacted } from "effect"
import type { Unauthenticated, Unavailable } from "#domain/errors.ts"
import type { AdministratorPrincipal } from "#domain/principal.ts"

/** A token cannot be signed: GATEWAY_JWT_SECRET is not set. */
export class TokenMintRefused extends Data.TaggedError("TokenMintRefused")<{ readonly message: string }> {}

/** The identity that a minted token attests. */
export type AdministratorIdentity = Omit<AdministratorPrincipal, "_tag">

/** Signed administrator tokens (decisions.md, section 3). */
export class AdministratorTokens extends Context.Service<
  AdministratorTokens,
  {
    /**
     * The administrator whom a token attests. Every fault of a token fails alike; an issuer whose keys cannot be
     * fetched is 503, never 401.
     */
    readonly verify: (token: string) => Effect.Effect<AdministratorPrincipal, Unauthenticated | Unavailable>
    /** Signs a token with GATEWAY_JWT_SECRET (HS256) that expires after `lifetime`. */
    readonly mint: (
      identity: AdministratorIdentity,
      lifetime: Duration.Duration
    ) => Effect.Effect<Redacted.Redacted<string>, TokenMintRefused>
  }
>()("sluice/identity/AdministratorTokens") {}
