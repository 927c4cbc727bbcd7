import { Context, type Effect, type Redacted } from "effect"
import type { GatewayError, Unavailable } from "#domain/errors.ts"
import type { JsonObject } from "#domain/json.ts"

/** A stored credential without its secrets: every string value of `credentialInfo` is masked. */
export interface MaskedCredential {
  readonly id: string
  readonly credentialName: string | null
  readonly credentialInfo: JsonObject
  readonly createdBy: string
  /** Unix milliseconds. */
  readonly createdAt: number
  readonly updatedAt: number
}

/** Names a row by its id, or by its unique name. Only the id form can rename. */
export interface CredentialTarget {
  readonly id?: string
  readonly credentialName?: string
}

/** Provider credentials, encrypted at rest (management-api.md, "credential"). */
export class CredentialVault extends Context.Service<
  CredentialVault,
  {
    readonly create: (credential: {
      readonly credentialName: string | null
      readonly credentialInfo: JsonObject
      readonly actor: string
    }) => Effect.Effect<string, GatewayError>
    readonly update: (
      target: CredentialTarget,
      change: { readonly credentialName?: string; readonly credentialInfo?: JsonObject; readonly actor: string }
    ) => Effect.Effect<void, GatewayError>
    readonly remove: (target: CredentialTarget, actor: string) => Effect.Effect<void, GatewayError>
    readonly list: Effect.Effect<ReadonlyArray<MaskedCredential>, Unavailable>
    /** The decrypted values of a named credential as this process knows them; undefined: none. A map look-up. */
    readonly reveal: (credentialName: string) => Redacted.Redacted<JsonObject> | undefined
    /** Calls back after each change, so that deployments can take new keys. */
    readonly onChange: (listener: () => void) => Effect.Effect<void>
  }
>()("sluice/models/CredentialVault") {}
