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
    /** The new row's id. A name that is taken is `already_exists`. */
    readonly create: (credential: {
      readonly credentialName: string | null
      readonly credentialInfo: JsonObject
      readonly actor: string
    }) => Effect.Effect<string, GatewayError>
    /** Creates the credential, or replaces the values of the one that has the name. */
    readonly put: (credential: {
      readonly credentialName: string
      readonly credentialInfo: JsonObject
      readonly actor: string
    }) => Effect.Effect<MaskedCredential, GatewayError>
    /** Lays the given values over the stored ones; null removes one. Fails with `resource_not_found`. */
    readonly update: (
      target: CredentialTarget,
      change: { readonly credentialName?: string; readonly credentialInfo?: JsonObject; readonly actor: string }
    ) => Effect.Effect<void, GatewayError>
    readonly remove: (target: CredentialTarget, actor: string) => Effect.Effect<void, GatewayError>
    /** Newest first. */
    readonly list: Effect.Effect<ReadonlyArray<MaskedCredential>, Unavailable>
    /** The decrypted values of a named credential as this process knows them; undefined: none. A map look-up. */
    readonly reveal: (credentialName: string) => Redacted.Redacted<JsonObject> | undefined
    /** Calls back after each change, so that deployments can take new keys. */
    readonly onChange: (listener: () => void) => Effect.Effect<void>
  }
>()("sluice/models/CredentialVault") {}
