import { Layer, type Redacted } from "effect"
import { rowCallerOf } from "#domain/people.ts"
import { type AdministratorRole, masterKeyPrincipal } from "#domain/principal.ts"
import * as AccountSpendPostgres from "#layers/budgets/AccountSpendPostgres.ts"
import * as BudgetTiersPostgres from "#layers/budgets/BudgetTiersPostgres.ts"
import * as PlanTiersPostgres from "#layers/budgets/PlanTiersPostgres.ts"
import * as SoftBudgetsPostgres from "#layers/budgets/SoftBudgetsPostgres.ts"
import * as KeyStorePostgres from "#layers/keys/KeyStorePostgres.ts"
import * as CustomerPoliciesPostgres from "#layers/people/CustomerPoliciesPostgres.ts"
import * as CustomersPostgres from "#layers/people/CustomersPostgres.ts"
import * as OrganizationsPostgres from "#layers/people/OrganizationsPostgres.ts"
import * as TeamsPostgres from "#layers/people/TeamsPostgres.ts"
import * as UsersPostgres from "#layers/people/UsersPostgres.ts"
import * as ProvenancePostgres from "#layers/provenance/ProvenancePostgres.ts"
import * as TenantsPostgres from "#layers/tenants/TenantsPostgres.ts"
import * as OwnerSpendPostgres from "#layers/usage/OwnerSpendPostgres.ts"
import { processOn } from "#test/support/keys.ts"
import { migrations, idleUsageLedger } from "#test/support/usage.ts"

/** Nothing pends: tests write the rollups themselves. */
const nothingPending = idleUsageLedger

/** A whole process with keys, people and tiers over a database. */
export const peopleProcess = (database: Redacted.Redacted<string>, slugs: ReadonlyArray<string> = []) =>
  Layer.mergeAll(
    UsersPostgres.layer,
    TeamsPostgres.layer,
    OrganizationsPostgres.layer,
    CustomersPostgres.layer,
    BudgetTiersPostgres.layer,
    PlanTiersPostgres.layer,
    SoftBudgetsPostgres.layer
  ).pipe(
    Layer.provideMerge(
      Layer.mergeAll(
        KeyStorePostgres.layer(),
        CustomerPoliciesPostgres.layer(),
        OwnerSpendPostgres.layer,
        AccountSpendPostgres.layer
      )
    ),
    Layer.provideMerge(Layer.mergeAll(ProvenancePostgres.layer, nothingPending)),
    Layer.provideMerge(TenantsPostgres.layer(slugs)),
    Layer.provide(migrations),
    Layer.provideMerge(processOn(database)),
    Layer.orDie
  )

export const master = rowCallerOf(masterKeyPrincipal)

/** An administrator of a tenant, or of one of its organizations. */
export const administrator = (role: AdministratorRole, tenant: string, organizationId?: string) =>
  rowCallerOf({
    _tag: "Administrator",
    subject: "ada",
    class: role === "instance_admin" ? "control_plane" : "tenant",
    role,
    tenant,
    organizationId,
    entitlements: new Set()
  })
