import { hash } from "node:crypto"
import { Effect, Redacted } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { idempotencyKeyReused } from "#domain/developer.ts"
import type { InvalidRequest } from "#domain/errors.ts"
import type { DeveloperPrincipal } from "#domain/principal.ts"
import { sealedContexts } from "#domain/sealed-contexts.ts"
import { Secrets } from "#services/security/Secrets.ts"

interface AnswerRow {
  readonly request_hash: Uint8Array
  readonly sealed: Uint8Array
  readonly encryption_key_id: string
}

/** A request as it is told from another one under the same key. */
export interface IdempotentRequest {
  readonly developer: DeveloperPrincipal
  readonly key: string
  /** Equal for equal requests. */
  readonly fingerprint: string
}

const sha256 = (text: string): Buffer => hash("sha256", text, "buffer")

const contextOf = ({ developer, key }: IdempotentRequest): string =>
  sealedContexts.idempotentAnswer(developer.tenant, developer.userId, sha256(key))

/**
 * Answers kept for an Idempotency-Key, sealed. To be used inside a transaction that lets one request of a developer
 * through at a time. Times are Unix milliseconds.
 */
export const makeIdempotentAnswers = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const secrets = yield* Secrets

  return {
    /** The kept answer; undefined for a first request. Another request under the key is `idempotency_key_reused`. */
    find: Effect.fnUntraced(function* (
      request: IdempotentRequest,
      now: number
    ): Effect.fn.Return<string | undefined, SqlError.SqlError | InvalidRequest> {
      const { developer, fingerprint, key } = request
      const [row] = yield* sql<AnswerRow>`SELECT request_hash, sealed, encryption_key_id
        FROM public.developer_idempotency WHERE tenant = ${developer.tenant} AND user_id = ${developer.userId}
          AND key_hash = ${sha256(key)} AND expires_at > ${new Date(now)}`
      if (row === undefined) return undefined
      if (!sha256(fingerprint).equals(row.request_hash)) return yield* idempotencyKeyReused
      const answer = yield* secrets.open({ bytes: row.sealed, keyId: row.encryption_key_id }, contextOf(request))
      return Redacted.value(answer)
    }),

    keep: (request: IdempotentRequest, answer: string, expiresAt: number) => {
      const { developer, fingerprint, key } = request
      const sealed = secrets.seal(Redacted.make(answer), contextOf(request))
      return sql`INSERT INTO public.developer_idempotency
          (tenant, user_id, key_hash, request_hash, sealed, encryption_key_id, expires_at)
        VALUES (${developer.tenant}, ${developer.userId}, ${sha256(key)}, ${sha256(fingerprint)}, ${sealed.bytes},
          ${sealed.keyId}, ${new Date(expiresAt)})
        ON CONFLICT (user_id, key_hash, tenant) DO UPDATE SET request_hash = excluded.request_hash,
          sealed = excluded.sealed, encryption_key_id = excluded.encryption_key_id, expires_at = excluded.expires_at`
    }
  }
})
