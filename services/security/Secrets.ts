import { Context, type Effect, type Redacted } from "effect"

/** A text encrypted at rest, with the id of the key that can open it. */
export interface Sealed {
  readonly bytes: Uint8Array
  readonly keyId: string
}

/** Encryption at rest with the instance's key (decisions.md, GATEWAY_ENCRYPTION_KEY): AES-256-GCM. */
export class Secrets extends Context.Service<
  Secrets,
  {
    /** The id of the key that seals. */
    readonly keyId: string
    /** `context` is authenticated with the text, so that a ciphertext moved to another row does not open. */
    readonly seal: (plaintext: Redacted.Redacted<string>, context: string) => Sealed
    /** Dies when the ciphertext was tampered with or its key is not configured. */
    readonly open: (sealed: Sealed, context: string) => Effect.Effect<Redacted.Redacted<string>>
  }
>()("sluice/security/Secrets") {}
