import { Context, type Effect } from "effect"
import type { GatewayError } from "#domain/errors.ts"
import type { ProviderPreset } from "#domain/providers/presets.ts"
import type { MaskedCredential } from "#services/models/CredentialVault.ts"

/** A provider known by name, and whether the gateway's environment holds its key. */
export interface DetectedPreset {
  readonly preset: ProviderPreset
  readonly detected: boolean
}

/** What came of provisioning. */
export interface Provisioned {
  readonly credential: MaskedCredential
  /** Models that were registered; those that already were do not count. */
  readonly modelsSynchronized: number
  /** Why there was no synchronization; null: there was. */
  readonly reason: string | null
}

/** Providers whose keys lie in the gateway's own environment (management-api.md, "credential", rule 3). */
export class Provisioning extends Context.Service<
  Provisioning,
  {
    readonly presets: () => ReadonlyArray<DetectedPreset>
    /**
     * Stores the provider's key as a credential of the provider's name and registers the provider's models. Can be
     * repeated. Fails with `resource_not_found` for an unknown provider and always in production, and with
     * `invalid_value` when the environment holds no key.
     */
    readonly provision: (provider: string, actor: string) => Effect.Effect<Provisioned, GatewayError>
  }
>()("sluice/models/Provisioning") {}
