/** The handlers of what administrators set up besides keys, models and people. */
import { Layer } from "effect"
import { BillingHandlers } from "#http/billing.ts"
import { CallbackHandlers } from "#http/callbacks.ts"
import { CatalogTagsHandlers } from "#http/catalogTags.ts"
import { ConfigHandlers } from "#http/config.ts"
import { GroupsHandlers } from "#http/groups.ts"
import { GuardrailHandlers } from "#http/guardrails.ts"
import { TagHandlers } from "#http/tags.ts"
import { TenantsHandlers } from "#http/tenants.ts"

export const AdministrationHandlers = Layer.mergeAll(
  GuardrailHandlers,
  CallbackHandlers,
  ConfigHandlers,
  TagHandlers,
  GroupsHandlers,
  CatalogTagsHandlers,
  BillingHandlers,
  TenantsHandlers
)
