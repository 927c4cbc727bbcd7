import { Cause, Clock, Deferred, Effect, Layer, Queue } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { databaseUnavailable, Unavailable } from "#domain/errors.ts"
import { maxEndUserIdLength } from "#domain/people.ts"
import { allowedModels, limitsOfOwner, mergedLimits, type OwnerLimitsRow } from "#domain/policy-chain.ts"
import {
  CUSTOMERS_CHANNEL,
  customerText,
  endUserKey,
  everyCustomer,
  parseCustomerText
} from "#layers/people/customer-changes.ts"
import { CustomerPolicies, type CustomerPolicy, type EndUser } from "#services/people/CustomerPolicies.ts"
import { ChangeFeed } from "#services/storage/ChangeFeed.ts"
import { orUnavailable } from "#services/storage/outage.ts"

export interface CustomerPoliciesOptions {
  /** End users held in memory at most, unknown ones included; those read longest ago go first. Default 100,000. */
  readonly capacity?: number
}

/** Read again after this, should a notification ever be lost. */
const REFRESH_MS = 60_000
/** End users looked up in one statement. */
const BATCH = 500
/** How long one statement may take. */
const TIMEOUT = "2 seconds"
/** How long the database is taken to be away after it failed to answer. */
const AWAY_MS = 1_000
/** Real time: a test's clock has no hold on a socket. */
const realClock = Clock.Clock.defaultValue()
/** Look-ups that may wait. */
const WAITING = 10_000

interface BoundRow {
  readonly tenant: string
  readonly end_user_id: string
  readonly organization_id: string | null
  readonly blocked: boolean
  readonly limits: OwnerLimitsRow
}

/** What binds an end user: the tenant's own customer and those of organizations. */
interface Entry {
  readonly rows: ReadonlyArray<BoundRow>
  /** By the organization of the calling key. */
  readonly policies: Map<string | null, CustomerPolicy | null>
  readonly readAt: number
  /** The feed's epoch when it was read; an older one means that a notification may have been missed. */
  readonly epoch: number
}

interface Lookup {
  readonly key: string
  readonly tenant: string
  readonly id: string
  readonly answer: Deferred.Deferred<Entry, Unavailable>
}

const overloaded = new Unavailable({
  code: "overloaded",
  message: "Too many unknown end users are being looked up.",
  retryAfter: 1
})

const compiled = (rows: ReadonlyArray<BoundRow>): CustomerPolicy | null =>
  rows.length === 0
    ? null
    : {
        blocked: rows.some(({ blocked }) => blocked),
        limits: mergedLimits(rows.flatMap(({ limits }) => limitsOfOwner(limits))),
        models: allowedModels(rows.map(({ limits }) => limits.models))
      }

const policyOf = (entry: Entry, organizationId: string | null): CustomerPolicy | null => {
  if (entry.rows.length === 0) return null
  const known = entry.policies.get(organizationId)
  if (known !== undefined) return known
  const policy = compiled(
    entry.rows.filter((row) => row.organization_id === null || row.organization_id === organizationId)
  )
  entry.policies.set(organizationId, policy)
  return policy
}

const make = Effect.fn("CustomerPoliciesPostgres.make")(function* (options: CustomerPoliciesOptions) {
  const sql = yield* SqlClient.SqlClient
  const feed = yield* ChangeFeed
  const clock = yield* Clock.Clock
  const capacity = options.capacity ?? 100_000
  const entries = new Map<string, Entry>()
  const lookups = new Map<string, Lookup>()
  const queue = yield* Queue.bounded<Lookup>(WAITING)
  /** Undefined until it is known. A tenant is only ever added: its last customer gone, it costs look-ups, not safety. */
  let tenants: Set<string> | undefined
  let epoch = 0
  /** Who was heard of while a statement was on its way. */
  let heard = new Set<string>()
  let heardOfAll = false
  let awayUntil = Number.NEGATIVE_INFINITY

  const apply = (payload: string) => {
    const change = parseCustomerText(payload)
    if (change === undefined) {
      heardOfAll = true
      entries.clear()
      return
    }
    tenants?.add(change.tenant)
    heard.add(change.key)
    entries.delete(change.key)
  }
  yield* feed.subscribe(CUSTOMERS_CHANNEL, apply)

  const readTenants = Effect.map(
    sql<{ readonly tenant: string }>`WITH RECURSIVE t (tenant) AS (
        SELECT min(tenant) FROM public.customers
        UNION ALL SELECT (SELECT min(c.tenant) FROM public.customers c WHERE c.tenant > t.tenant) FROM t
        WHERE t.tenant IS NOT NULL
      ) SELECT tenant FROM t WHERE tenant IS NOT NULL`,
    (rows) => rows.map(({ tenant }) => tenant)
  )
  // Subscribed first, so that a customer made between the two is heard of.
  tenants = new Set(yield* readTenants)

  yield* feed.onReconnect(() => {
    epoch += 1
    awayUntil = Number.NEGATIVE_INFINITY
    // A tenant's first customer may have been missed.
    tenants = undefined
  })

  const select = (batch: ReadonlyArray<Lookup>) =>
    sql<BoundRow>`SELECT c.tenant, c.end_user_id, c.organization_id, c.blocked, public.owner_limits('customer', c.id,
        c.max_budget, c.soft_budget, c.rpm_limit, c.tpm_limit, c.models, b) AS limits
      FROM unnest(${batch.map(({ tenant }) => tenant)}::text[], ${batch.map(({ id }) => id)}::text[]) AS e (tenant, id)
      JOIN public.customers c ON c.tenant = e.tenant AND c.end_user_id = e.id
      LEFT JOIN public.budgets b ON b.tenant = c.tenant AND b.budget_id = c.budget_id`

  const settle = (batch: ReadonlyArray<Lookup>, rows: ReadonlyArray<BoundRow>, asOf: number) => {
    const byKey = Map.groupBy(rows, (row) => endUserKey(row.tenant, row.end_user_id))
    const readAt = clock.currentTimeMillisUnsafe()
    awayUntil = Number.NEGATIVE_INFINITY
    for (const lookup of batch) {
      const entry: Entry = { rows: byKey.get(lookup.key) ?? [], policies: new Map(), readAt, epoch: asOf }
      lookups.delete(lookup.key)
      // What was changed meanwhile may be older than the change: it answers those who asked before, and is not kept.
      if (!heardOfAll && !heard.has(lookup.key)) {
        entries.delete(lookup.key)
        entries.set(lookup.key, entry)
        if (entries.size > capacity) entries.delete(entries.keys().next().value ?? "")
      }
      Deferred.doneUnsafe(lookup.answer, Effect.succeed(entry))
    }
  }

  const unread = (batch: ReadonlyArray<Lookup>, cause: Cause.Cause<Unavailable>): Effect.Effect<void> => {
    if (Cause.hasInterruptsOnly(cause)) return Effect.failCause(cause as Cause.Cause<never>)
    awayUntil = clock.currentTimeMillisUnsafe() + AWAY_MS
    for (const lookup of batch) {
      const entry = entries.get(lookup.key)
      lookups.delete(lookup.key)
      Deferred.doneUnsafe(lookup.answer, entry === undefined ? Effect.fail(databaseUnavailable) : Effect.succeed(entry))
    }
    return Effect.logWarning("Customers cannot be read", cause)
  }

  const read = (batch: ReadonlyArray<Lookup>): Effect.Effect<void> =>
    Effect.suspend(() => {
      heard = new Set()
      heardOfAll = false
      const asOf = epoch
      const statement: Effect.Effect<ReadonlyArray<BoundRow>, SqlError.SqlError> = Effect.gen(function* () {
        if (tenants === undefined) {
          const found = new Set(yield* readTenants)
          if (asOf === epoch) tenants = found
        }
        return yield* select(batch)
      })
      return orUnavailable(statement).pipe(
        Effect.timeoutOrElse({ duration: TIMEOUT, orElse: () => Effect.fail(databaseUnavailable) }),
        Effect.provideService(Clock.Clock, realClock),
        Effect.matchCauseEffect({
          onSuccess: (rows) => Effect.sync(() => settle(batch, rows, asOf)),
          onFailure: (cause) => unread(batch, cause)
        })
      )
    })
  yield* Queue.takeBetween(queue, 1, BATCH).pipe(Effect.flatMap(read), Effect.forever, Effect.forkScoped)

  const changed = (customer: Pick<EndUser, "tenant" | "id"> | "all") => {
    const payload = customer === "all" ? everyCustomer : customerText(customer.tenant, customer.id)
    return Effect.andThen(sql.afterCommit(Effect.sync(() => apply(payload))), feed.notify(CUSTOMERS_CHANNEL, payload))
  }

  const known = (endUser: EndUser): CustomerPolicy | null | undefined => {
    // What cannot be stored as a customer's id is none's.
    if (endUser.id.length > maxEndUserIdLength || endUser.id.includes("\0")) return null
    if (tenants !== undefined && !tenants.has(endUser.tenant)) return null
    const entry = entries.get(endUserKey(endUser.tenant, endUser.id))
    if (entry === undefined) return undefined
    const now = clock.currentTimeMillisUnsafe()
    const fresh = entry.epoch === epoch && now - entry.readAt <= REFRESH_MS
    // Where nobody can be asked, what was known stays in force.
    return fresh || now < awayUntil ? policyOf(entry, endUser.organizationId) : undefined
  }

  const find = (endUser: EndUser) =>
    Effect.suspend(() => {
      const policy = known(endUser)
      if (policy !== undefined) return Effect.succeed(policy)
      if (clock.currentTimeMillisUnsafe() < awayUntil) return Effect.fail(databaseUnavailable)
      const key = endUserKey(endUser.tenant, endUser.id)
      let lookup = lookups.get(key)
      if (lookup === undefined) {
        lookup = { key, tenant: endUser.tenant, id: endUser.id, answer: Deferred.makeUnsafe() }
        if (!Queue.offerUnsafe(queue, lookup)) return Effect.fail(overloaded)
        lookups.set(key, lookup)
      }
      return Effect.map(Deferred.await(lookup.answer), (entry) => policyOf(entry, endUser.organizationId))
    })

  return CustomerPolicies.of({ known, find, changed })
})

/** Policies of end users in memory, dropped when the change feed says so and read again after 60 s in any case. */
export const layer = (
  options: CustomerPoliciesOptions = {}
): Layer.Layer<CustomerPolicies, SqlError.SqlError, SqlClient.SqlClient | ChangeFeed> =>
  Layer.effect(CustomerPolicies, make(options))
