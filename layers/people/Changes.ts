import { Clock, Effect } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { forbidden, type GatewayError, type NotFound } from "#domain/errors.ts"
import type { JsonObject } from "#domain/json.ts"
import type { RowCaller } from "#domain/people.ts"
import { requireBudgetTier } from "#services/budgets/require-budget-tier.ts"
import { KeyStore } from "#services/keys/KeyStore.ts"
import { makeAudit } from "#services/provenance/audit.ts"
import { orUnavailable } from "#services/storage/outage.ts"
import { isProvisioned, Tenants } from "#services/tenants/Tenants.ts"

/** What happened to whom, for the audit trail. `action` without the resource: `created`. */
export interface Deed {
  readonly tenant: string
  readonly organizationId?: string | null
  readonly resource: "user" | "team" | "organization" | "customer"
  readonly id: string
  readonly action: string
  readonly payload: JsonObject
}

/** Whose row it is: what its deeds are recorded under. */
export interface RowOwner {
  readonly tenant: string
  readonly organizationId: string | null
}

/** Finds a row that the caller may change, and keeps it from others until the transaction ends. */
export type Lock = (
  id: string,
  caller: RowCaller,
  strength: "NO KEY UPDATE" | "SHARE"
) => Effect.Effect<RowOwner, NotFound | SqlError.SqlError>

export type Changes = Effect.Success<typeof makeChanges>

/** What every mutation of people needs. `record` is a transaction's last statement: it holds the chain's head. */
export const makeChanges = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const audit = yield* makeAudit
  const tenants = yield* Tenants
  const clock = yield* Clock.Clock
  const keys = yield* KeyStore

  const transaction = <A, E>(effect: Effect.Effect<A, E | SqlError.SqlError>) =>
    sql.withTransaction(effect).pipe(orUnavailable)

  const record = ({ action, id, organizationId, payload, resource, tenant }: Deed, caller: RowCaller) =>
    audit({
      tenant,
      action: `${resource}.${action}`,
      actor: caller.actor,
      resourceType: resource,
      resourceId: id,
      payload,
      ...(typeof organizationId === "string" ? { organizationId } : {})
    })

  /** The tenant of a caller's new rows: one that is not provisioned has no schema for their usage. */
  const ownTenant = (caller: RowCaller): Effect.Effect<string, GatewayError> =>
    isProvisioned(tenants, caller.tenant)
      ? Effect.succeed(caller.tenant)
      : Effect.fail(forbidden("The caller's tenant is not provisioned."))

  return {
    now: () => clock.currentTimeMillisUnsafe(),
    transaction,
    record,
    ownTenant,
    requireTier: (tenant: string, budgetId: string | null | undefined) => requireBudgetTier(sql, tenant, budgetId),
    ownerChanged: keys.ownerChanged
  }
})
