import { Context, Data, type Effect, type Redacted } from "effect"
import type { ProviderPreset } from "#domain/providers/presets.ts"

/** A provider's own list of models could not be read. `reason` is fit for the operator: no address, no key. */
export class CatalogUnreadable extends Data.TaggedError("CatalogUnreadable")<{ readonly reason: string }> {}

/** What a provider offers, by its own account. */
export class ProviderCatalog extends Context.Service<
  ProviderCatalog,
  {
    /** The names that the provider gives its models, at most 1000. */
    readonly models: (
      preset: ProviderPreset,
      access: { readonly apiBase: string | undefined; readonly apiKey: Redacted.Redacted<string> }
    ) => Effect.Effect<ReadonlyArray<string>, CatalogUnreadable>
  }
>()("sluice/models/ProviderCatalog") {}
