import { Clock, type Duration, Effect, Layer } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import {
  type GatewayError,
  InvalidRequest,
  modelUnauthenticated,
  notFound,
  tenantNotProvisioned
} from "#domain/errors.ts"
import { newApiKey, uuidv7 } from "#domain/ids.ts"
import type { JsonObject } from "#domain/json.ts"
import type { Key, KeyChange, KeyDraft, KeyFilter, KeyTarget } from "#domain/keys.ts"
import type { KeyPolicy, RowScope } from "#domain/principal.ts"
import { auditedChange, auditedKey, makeKeyQueries } from "#layers/keys/KeyQueries.ts"
import { isApiKey, keyOf, type KeyRow, tokenDigest } from "#layers/keys/KeyRows.ts"
import { PolicyCache, type CachedPolicy } from "#layers/keys/PolicyCache.ts"
import { changeText, KEYS_CHANNEL, parseChange, PolicyChange } from "#layers/keys/PolicyChange.ts"
import { PolicyReader } from "#layers/keys/PolicyReader.ts"
import { requireBudgetTier } from "#services/budgets/require-budget-tier.ts"
import { CurrentRequestId } from "#services/identity/CurrentRequestId.ts"
import { KeyStore, type PolicyOwner } from "#services/keys/KeyStore.ts"
import { Provenance } from "#services/provenance/Provenance.ts"
import { ChangeFeed } from "#services/storage/ChangeFeed.ts"
import { orUnavailable } from "#services/storage/outage.ts"
import { isProvisioned, Tenants } from "#services/tenants/Tenants.ts"

export interface KeyStoreOptions {
  /** Policies held in memory at most. Default 100,000. */
  readonly capacity?: number
  /** How long one look-up of keys may take. Default 2 s. */
  readonly lookupTimeout?: Duration.Input
}

/** A policy is read again, in the background, when it is used after this. */
const REFRESH_MS = 60_000
const TOKEN_LENGTH = 46

type KeyAction = "created" | "updated" | "blocked" | "unblocked" | "deleted" | "regenerated"
type AuditedKey = Pick<KeyRow, "id" | "tenant" | "organization_id">

const make = Effect.fn("KeyStorePostgres.make")(function* (options: KeyStoreOptions) {
  const sql = yield* SqlClient.SqlClient
  const feed = yield* ChangeFeed
  const provenance = yield* Provenance
  const tenants = yield* Tenants
  const clock = yield* Clock.Clock
  const now = () => clock.currentTimeMillisUnsafe()
  const queries = makeKeyQueries(sql)
  const cache = new PolicyCache({ capacity: options.capacity ?? 100_000, refusals: 10_000 })
  const reader = yield* PolicyReader.make({
    cache,
    now,
    // A call of a tenant that has no tables could not be recorded: its keys are refused as unknown ones are.
    select: (digests) =>
      Effect.map(queries.byDigests(digests), (rows) => rows.filter(({ tenant }) => isProvisioned(tenants, tenant))),
    timeout: options.lookupTimeout ?? "2 seconds"
  })
  yield* feed.subscribe(KEYS_CHANNEL, (payload) => reader.apply(parseChange(payload)))
  yield* feed.onReconnect(() => reader.doubtAll())

  const isExpired = ({ policy }: CachedPolicy, at: number): boolean =>
    policy.expiresAt !== undefined && at >= policy.expiresAt

  const known = (token: string): KeyPolicy | undefined => {
    if (token.length !== TOKEN_LENGTH) return undefined
    const entry = cache.find(token)
    if (entry === undefined || !reader.mayServe(entry)) return undefined
    const at = now()
    if (isExpired(entry, at)) return undefined
    if (at - entry.checkedAt > REFRESH_MS) reader.refresh(entry)
    return entry.policy
  }

  const authenticate = (token: string) =>
    Effect.suspend(() => {
      if (!isApiKey(token)) return Effect.fail(modelUnauthenticated)
      const policy = known(token)
      if (policy !== undefined) return Effect.succeed(policy)
      const digest = tokenDigest(token)
      const at = now()
      if (cache.isRefused(digest, at)) return Effect.fail(modelUnauthenticated)
      const entry = cache.get(digest)
      return entry !== undefined && reader.mayServe(entry) && isExpired(entry, at)
        ? Effect.fail(modelUnauthenticated)
        : reader.read(digest)
    })

  const ofPrincipal = Effect.fn("KeyStore.ofPrincipal")(function* (principal: string, tenant: string) {
    const [row] = yield* queries.byPrincipal(principal, tenant, now()).pipe(orUnavailable)
    if (row === undefined) return yield* modelUnauthenticated
    const digest = Buffer.from(row.token_hash).toString("base64")
    const entry = cache.get(digest)
    return entry !== undefined && reader.mayServe(entry) && !isExpired(entry, now())
      ? entry.policy
      : yield* reader.read(digest)
  })

  /** Inside a transaction: every process drops what the change reaches when it commits, this one before it answers. */
  const announce = (change: PolicyChange) =>
    Effect.andThen(
      sql.afterCommit(Effect.sync(() => reader.apply(change))),
      feed.notify(KEYS_CHANNEL, changeText(change))
    )

  const entryOf = (
    action: KeyAction,
    key: AuditedKey,
    actor: string,
    payload: JsonObject,
    requestId: string | null
  ) => ({
    action: `key.${action}`,
    actor,
    resourceType: "key",
    resourceId: key.id,
    organizationId: key.organization_id,
    requestId,
    payload,
    createdAt: now()
  })

  const audit = Effect.fnUntraced(function* (
    action: KeyAction,
    rows: ReadonlyArray<AuditedKey>,
    actor: string,
    payload: JsonObject
  ) {
    const requestId = yield* CurrentRequestId
    const byTenant = Map.groupBy(rows, ({ tenant }) => tenant)
    // In one order everywhere, because each chain stays locked until the commit.
    for (const tenant of [...byTenant.keys()].sort()) {
      const entries = (byTenant.get(tenant) ?? []).map((key) => entryOf(action, key, actor, payload, requestId))
      yield* provenance.append(tenant, entries)
    }
  })

  const transaction = <A, E>(effect: Effect.Effect<A, E | SqlError.SqlError>) =>
    sql.withTransaction(effect).pipe(orUnavailable)

  /**
   * Changes one row under its lock. A commit whose outcome is not known counts as done for the cache: the row is
   * dropped here in any case.
   */
  const change = <A>(
    target: KeyTarget,
    scope: RowScope,
    run: (row: KeyRow) => Effect.Effect<A, GatewayError | SqlError.SqlError>
  ) => {
    let touched: string | undefined
    return transaction(
      Effect.gen(function* () {
        const [row] = yield* queries.lock(target, scope)
        if (row === undefined) return yield* notFound("key")
        touched = row.id
        const result = yield* run(row)
        yield* announce(PolicyChange.Key({ id: row.id }))
        return result
      })
    ).pipe(
      Effect.onError(() =>
        Effect.sync(() => {
          if (touched !== undefined) reader.apply(PolicyChange.Key({ id: touched }))
        })
      )
    )
  }

  const issued = (row: KeyRow | undefined, plaintext: string) =>
    row === undefined ? Effect.die(new Error("no row came back")) : Effect.succeed({ key: keyOf(row), plaintext })

  const generate = Effect.fn("KeyStore.generate")(function* (draft: KeyDraft) {
    const plaintext = newApiKey()
    const at = now()
    const id = uuidv7(at)
    return yield* transaction(
      Effect.gen(function* () {
        yield* requireBudgetTier(sql, draft.tenant, draft.budgetId)
        const [row] = yield* queries.insert(id, plaintext, draft, at)
        const result = yield* issued(row, plaintext)
        yield* audit("created", row === undefined ? [] : [row], draft.actor, auditedKey(result.key))
        return result
      })
    )
  })

  const update = Effect.fn("KeyStore.update")((target: KeyTarget, fields: KeyChange, scope: RowScope) =>
    change(target, scope, (row) =>
      Effect.gen(function* () {
        yield* requireBudgetTier(sql, row.tenant, fields.budgetId)
        yield* queries.update(row.id, fields, now())
        yield* audit("updated", [row], fields.actor, { changed: auditedChange(fields) })
      })
    )
  )

  const setBlocked = Effect.fn("KeyStore.setBlocked")(
    (target: KeyTarget, blocked: boolean, scope: RowScope, actor: string) =>
      change(target, scope, (row) =>
        Effect.andThen(
          queries.setBlocked(row.id, blocked, now()),
          audit(blocked ? "blocked" : "unblocked", [row], actor, {})
        )
      )
  )

  const regenerate = Effect.fn("KeyStore.regenerate")((target: KeyTarget, scope: RowScope, actor: string) =>
    change(target, scope, (row) => {
      const plaintext = newApiKey()
      return Effect.gen(function* () {
        const [renewed] = yield* queries.replaceToken(row.id, plaintext, now())
        yield* audit("regenerated", [row], actor, {})
        return yield* issued(renewed, plaintext)
      })
    })
  )

  const discard = Effect.fn("KeyStore.discard")(function* (
    targets: ReadonlyArray<KeyTarget>,
    scope: RowScope,
    actor: string
  ) {
    let touched: ReadonlyArray<string> = []
    return yield* transaction(
      Effect.gen(function* () {
        const rows = yield* queries.discard(targets, scope, now())
        const stray = rows.find(({ tenant }) => !isProvisioned(tenants, tenant))
        if (stray !== undefined) {
          return yield* new InvalidRequest({
            code: "invalid_state",
            message: tenantNotProvisioned(stray.tenant).message
          })
        }
        touched = rows.map(({ id }) => id)
        yield* audit("deleted", rows, actor, {})
        yield* Effect.forEach(touched, (id) => announce(PolicyChange.Key({ id })), { discard: true })
        return touched
      })
    ).pipe(Effect.onError(() => Effect.sync(() => touched.forEach((id) => reader.apply(PolicyChange.Key({ id }))))))
  })

  const find = Effect.fn("KeyStore.find")((target: KeyTarget, scope: RowScope) =>
    queries.find(target, scope).pipe(
      orUnavailable,
      Effect.flatMap(([row]): Effect.Effect<Key, ReturnType<typeof notFound>> =>
        row === undefined ? Effect.fail(notFound("key")) : Effect.succeed(keyOf(row))
      )
    )
  )

  const list = Effect.fn("KeyStore.list")((filter: KeyFilter, scope: RowScope) =>
    Effect.all({ rows: queries.list(filter, scope), total: queries.count(filter, scope) }).pipe(
      Effect.map(({ rows, total }) => ({ keys: rows.map(keyOf), total })),
      orUnavailable
    )
  )

  return KeyStore.of({
    known,
    authenticate,
    ofPrincipal,
    generate,
    update,
    setBlocked,
    discard,
    regenerate,
    find,
    list,
    ownerChanged: (owner: PolicyOwner, id: string) =>
      announce(owner === "budget_tier" ? PolicyChange.Everything() : PolicyChange.Owner({ owner, id }))
  })
})

/**
 * API keys in PostgreSQL, their policies in memory (design.md, "Authenticate"). A cached policy is dropped when this
 * process changes its key, when another one says so on the change feed, and is read again in the background 60 s after
 * it was read last. What a reader finds is kept only if nothing was heard of it while it read.
 */
export const layer = (
  options: KeyStoreOptions = {}
): Layer.Layer<KeyStore, never, SqlClient.SqlClient | ChangeFeed | Provenance | Tenants> =>
  Layer.effect(KeyStore, make(options))
