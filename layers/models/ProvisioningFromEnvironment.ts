import { Effect, Layer, Redacted } from "effect"
import { invalidValue, notFound } from "#domain/errors.ts"
import type { JsonObject } from "#domain/json.ts"
import { accountFrom, settingsFrom } from "#domain/providers/environment.ts"
import { detectedKey, findPreset, type ProviderPreset, providerPresets } from "#domain/providers/presets.ts"
import { CredentialVault } from "#services/models/CredentialVault.ts"
import { ModelRegistry } from "#services/models/ModelRegistry.ts"
import { ProviderCatalog } from "#services/models/ProviderCatalog.ts"
import { Provisioning } from "#services/models/Provisioning.ts"

export interface ProvisioningOptions {
  readonly production: boolean
  readonly environment: Readonly<Record<string, string | undefined>>
}

/** Reads keys from the environment the process was started with. */
export const layer = (
  options: ProvisioningOptions
): Layer.Layer<Provisioning, never, CredentialVault | ModelRegistry | ProviderCatalog> =>
  Layer.effect(
    Provisioning,
    Effect.gen(function* () {
      const vault = yield* CredentialVault
      const registry = yield* ModelRegistry
      const catalog = yield* ProviderCatalog
      const { environment, production } = options

      const firstSet = (names: ReadonlyArray<string>): string | undefined =>
        names.map((name) => environment[name]?.trim()).find((value) => value !== undefined && value !== "")

      const credentialInfo = (preset: ProviderPreset, apiBase: string | undefined): JsonObject => ({
        ...settingsFrom(preset, environment),
        ...accountFrom(preset, environment),
        ...(apiBase === undefined ? {} : { api_base: apiBase })
      })

      const provision = Effect.fn("Provisioning.provision")(function* (provider: string, actor: string) {
        const preset = production ? undefined : findPreset(provider)
        if (preset === undefined) return yield* notFound("provider")
        const variable = detectedKey(preset, environment)
        const key = variable === undefined ? undefined : environment[variable]
        if (key === undefined) {
          const expected = preset.keyVariables.join(" or ")
          return yield* invalidValue(
            "provider",
            expected === ""
              ? `The provider '${preset.name}' needs no key.`
              : `The gateway's environment has no key for '${preset.name}': ${expected} is not set.`
          )
        }
        const apiBase = firstSet(preset.baseVariables)
        const credential = yield* vault.put({
          credentialName: preset.name,
          credentialInfo: credentialInfo(preset, apiBase),
          actor
        })
        const synchronized = yield* catalog.models(preset, { apiBase, apiKey: Redacted.make(key) }).pipe(
          Effect.flatMap((names) =>
            registry.createMissing(
              names.map((name) => ({
                modelName: `${preset.name}/${name}`,
                gatewayParams: { model: `${preset.name}/${name}`, credential_name: preset.name },
                modelInfo: {}
              })),
              actor
            )
          ),
          Effect.map((modelsSynchronized) => ({ modelsSynchronized, reason: null })),
          Effect.catchTag("CatalogUnreadable", ({ reason }) =>
            Effect.succeed({
              modelsSynchronized: 0,
              reason: `The models of '${preset.name}' could not be listed: ${reason}.`
            })
          )
        )
        return { credential, ...synchronized }
      })

      return Provisioning.of({
        presets: () =>
          providerPresets.map((preset) => ({ preset, detected: detectedKey(preset, environment) !== undefined })),
        provision
      })
    })
  )
