/** The handlers of people and of the tiers that bind them. */
import { Layer } from "effect"
import { BudgetHandlers } from "#http/budgets.ts"
import { CustomerHandlers } from "#http/customers.ts"
import { OrganizationHandlers } from "#http/organizations.ts"
import { TeamHandlers } from "#http/teams.ts"
import { TierHandlers } from "#http/tiers.ts"
import { UserHandlers } from "#http/users.ts"

export const PeopleHandlers = Layer.mergeAll(
  UserHandlers,
  TeamHandlers,
  OrganizationHandlers,
  CustomerHandlers,
  BudgetHandlers,
  TierHandlers
)
