import { Context, type Effect } from "effect"
import type { GatewayError } from "#domain/errors.ts"
import type { PlanTier, PlanTierDraft } from "#domain/tiers.ts"

/** The catalogue of plan tiers (management-api.md, "tier"): one for the whole instance. */
export class PlanTiers extends Context.Service<
  PlanTiers,
  {
    /** Creates the tier or writes the given fields of an existing one. Organizations follow when it is applied again. */
    readonly put: (
      draft: PlanTierDraft,
      actor: string
    ) => Effect.Effect<{ readonly tier: PlanTier; readonly created: boolean }, GatewayError>
  }
>()("sluice/budgets/PlanTiers") {}
