import { Clock, Duration, Effect, Layer, Semaphore } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { canonicalJson } from "#domain/canonical-json.ts"
import { type DeveloperKeyDraft, grantedBudget, grantedModels, keyLimitReached } from "#domain/developer.ts"
import { managementUnauthenticated, notFound, ValidationFailed } from "#domain/errors.ts"
import { isUuid } from "#domain/ids.ts"
import { dollarsText } from "#domain/money.ts"
import { allowedModels } from "#domain/policy-chain.ts"
import { actorOf, type DeveloperPrincipal } from "#domain/principal.ts"
import { makeIdempotentAnswers } from "#layers/developer/IdempotentAnswers.ts"
import { keyOf, makeKeyQueries } from "#layers/developer/KeyQueries.ts"
import { DeveloperKeys, type MintedKey } from "#services/developer/DeveloperKeys.ts"
import { KeyStore } from "#services/keys/KeyStore.ts"
import type { Secrets } from "#services/security/Secrets.ts"
import { orUnavailable } from "#services/storage/outage.ts"
import { nanosOf } from "#services/storage/rows.ts"

export interface DeveloperKeysOptions {
  /** DEVELOPER_MAX_KEYS_PER_USER. */
  readonly maxKeys: number
  /** GATEWAY_IDEMPOTENCY_TTL. */
  readonly idempotencyTtl: Duration.Duration
}

/** Creations at once in one process: each holds a connection while it waits for its developer's turn. */
const CREATIONS = 2

/** Equal for drafts that ask for the same. */
const fingerprintOf = (draft: DeveloperKeyDraft): string =>
  canonicalJson({
    key_name: draft.keyName,
    key_alias: draft.keyAlias,
    max_budget: draft.maxBudget === null ? null : dollarsText(draft.maxBudget),
    models: draft.models ?? [],
    rpm_limit: draft.rpmLimit,
    tpm_limit: draft.tpmLimit,
    expires: draft.expires
  })

/** A developer's keys in `api_keys`, made and discarded through `KeyStore`, so that every process hears of it. */
export const layer = (
  options: DeveloperKeysOptions
): Layer.Layer<DeveloperKeys, never, SqlClient.SqlClient | KeyStore | Secrets> =>
  Layer.effect(
    DeveloperKeys,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const keys = yield* KeyStore
      const clock = yield* Clock.Clock
      const now = () => clock.currentTimeMillisUnsafe()
      const queries = makeKeyQueries(sql)
      const answers = yield* makeIdempotentAnswers
      const turn = yield* Semaphore.make(CREATIONS)

      const transaction = <A, E>(effect: Effect.Effect<A, E | SqlError.SqlError>) =>
        sql.withTransaction(effect).pipe(orUnavailable)

      const create = Effect.fnUntraced(function* (developer: DeveloperPrincipal, draft: DeveloperKeyDraft) {
        const [grant] = yield* queries.lockGrant(developer)
        if (grant?.deleted === true) return yield* managementUnauthenticated
        const actor = actorOf(developer)
        const [owned] = yield* queries.allocated(developer, actor)
        if ((owned?.made ?? 0) >= options.maxKeys) return yield* keyLimitReached(options.maxKeys)
        const restriction = grant === undefined || grant.models.length === 0 ? undefined : grant.models
        const models = grantedModels(draft.models, [restriction, developer.models])
        if (models instanceof ValidationFailed) return yield* models
        const budget = grantedBudget(
          draft.maxBudget,
          nanosOf(grant?.ceiling ?? null),
          nanosOf(owned?.allocated ?? null) ?? 0n
        )
        if (budget instanceof ValidationFailed) return yield* budget
        const { key, plaintext } = yield* keys.generate({
          ...draft,
          maxBudget: budget,
          models,
          tenant: developer.tenant,
          userId: developer.userId,
          teamId: null,
          organizationId: null,
          metadata: {},
          actor
        })
        const minted: MintedKey = { id: key.id, key: plaintext, keyAlias: key.keyAlias }
        return minted
      })

      const mint = Effect.fn("DeveloperKeys.mint")(
        (developer: DeveloperPrincipal, draft: DeveloperKeyDraft, idempotencyKey: string | undefined) =>
          turn.withPermit(
            transaction(
              Effect.gen(function* () {
                yield* queries.lockDeveloper(developer)
                if (idempotencyKey === undefined) return yield* create(developer, draft)
                const request = { developer, key: idempotencyKey, fingerprint: fingerprintOf(draft) }
                const at = now()
                const kept = yield* answers.find(request, at)
                if (kept !== undefined) return JSON.parse(kept) as MintedKey
                const minted = yield* create(developer, draft)
                yield* answers.keep(request, JSON.stringify(minted), at + Duration.toMillis(options.idempotencyTtl))
                return minted
              })
            )
          )
      )

      const revoke = Effect.fn("DeveloperKeys.revoke")((developer: DeveloperPrincipal, id: string) =>
        transaction(
          Effect.gen(function* () {
            const [row] = yield* queries.lockOwn(developer, id)
            if (row === undefined) return yield* notFound("key")
            yield* keys.discard(
              [{ id: row.id }],
              { tenant: developer.tenant, organizationId: undefined },
              actorOf(developer)
            )
          })
        )
      )

      const find = Effect.fn("DeveloperKeys.find")(function* (developer: DeveloperPrincipal, id: string) {
        const [row] = isUuid(id) ? yield* orUnavailable(queries.find(developer, id)) : []
        return row === undefined ? yield* notFound("key") : keyOf(row)
      })

      const list = Effect.fn("DeveloperKeys.list")((developer: DeveloperPrincipal, limit: number, offset: number) =>
        queries.list(developer, limit, offset).pipe(
          orUnavailable,
          Effect.map((rows) => rows.map(keyOf))
        )
      )

      const allowlist = Effect.fn("DeveloperKeys.allowlist")((developer: DeveloperPrincipal) =>
        queries.grant(developer).pipe(
          orUnavailable,
          Effect.map(([grant]) => {
            const own = allowedModels([grant?.models ?? []])
            const { models } = developer
            if (own === undefined || models === undefined) return own ?? models
            return new Set([...own].filter((model) => models.has(model)))
          })
        )
      )

      return DeveloperKeys.of({ mint, revoke, find, list, allowlist })
    })
  )
