import { hash, randomBytes } from "node:crypto"
import { Clock, Duration, Effect, Layer, Redacted, Semaphore } from "effect"
import { SqlClient } from "effect/sql"
import { managementUnauthenticated, type Unauthenticated, Unavailable } from "#domain/errors.ts"
import { isUuid, uuidv7 } from "#domain/ids.ts"
import type { DeveloperPrincipal } from "#domain/principal.ts"
import { DeveloperSessions, SessionRefused, type SessionTarget } from "#services/developer/DeveloperSessions.ts"
import { makeAudit } from "#services/provenance/audit.ts"
import type { Provenance } from "#services/provenance/Provenance.ts"
import { orUnavailable } from "#services/storage/outage.ts"

/** Who makes and ends sessions, as audit entries name it. */
const OPERATOR = "operator"
/** Look-ups at once, so that a flood of made-up cookies leaves the other connections alone, and those that may wait. */
const LOOKUPS = 2
const WAITING = 1_000

const token = /^gws_[A-Za-z0-9_-]{43}$/
const newToken = (): string => `gws_${randomBytes(32).toString("base64url")}`
const tokenHash = (text: string): Buffer => hash("sha256", text, "buffer")

const overloaded = new Unavailable({
  code: "overloaded",
  message: "Too many sessions are being looked up.",
  retryAfter: 1
})

interface SessionRow {
  readonly user_id: string
  readonly tenant: string
}

/** Sessions in `public`. Every request asks, because a developer's requests are few and a revocation must hold at once. */
export const layer: Layer.Layer<DeveloperSessions, never, SqlClient.SqlClient | Provenance> = Layer.effect(
  DeveloperSessions,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const audit = yield* makeAudit
    const clock = yield* Clock.Clock
    const now = () => clock.currentTimeMillisUnsafe()
    const turn = yield* Semaphore.make(LOOKUPS)
    let waiting = 0

    const lookUp = (text: string) =>
      sql<SessionRow>`SELECT u.id AS user_id, u.tenant FROM public.developer_sessions s
        JOIN public.users u ON u.id = s.user_id
        WHERE s.token_hash = ${tokenHash(text)} AND s.revoked_at IS NULL AND s.expires_at > ${new Date(now())}
          AND u.deleted_at IS NULL AND u.user_role = 'developer'`.pipe(
        orUnavailable,
        Effect.flatMap(([row]): Effect.Effect<DeveloperPrincipal, Unauthenticated> =>
          row === undefined
            ? Effect.fail(managementUnauthenticated)
            : Effect.succeed({ _tag: "Developer", userId: row.user_id, tenant: row.tenant })
        )
      )

    const authenticate = (text: string) =>
      Effect.suspend((): Effect.Effect<DeveloperPrincipal, Unauthenticated | Unavailable> => {
        if (!token.test(text)) return Effect.fail(managementUnauthenticated)
        if (waiting >= WAITING) return Effect.fail(overloaded)
        waiting += 1
        return Effect.ensuring(
          turn.withPermit(lookUp(text)),
          Effect.sync(() => {
            waiting -= 1
          })
        )
      })

    const create = Effect.fn("DeveloperSessions.create")(function* (userId: string, lifetime: Duration.Duration) {
      const at = now()
      const id = uuidv7(at)
      const text = newToken()
      const expiresAt = at + Duration.toMillis(lifetime)
      return yield* sql
        .withTransaction(
          Effect.gen(function* () {
            const [user] = yield* sql<{ readonly tenant: string; readonly user_role: string }>`SELECT tenant, user_role
              FROM public.users WHERE id = ${userId} AND deleted_at IS NULL FOR SHARE`
            if (user === undefined) return yield* new SessionRefused({ message: `There is no user '${userId}'` })
            yield* sql`INSERT INTO public.developer_sessions (id, token_hash, user_id, created_at, expires_at)
              VALUES (${id}, ${tokenHash(text)}, ${userId}, ${new Date(at)}, ${new Date(expiresAt)})`
            yield* audit({
              tenant: user.tenant,
              action: "session.created",
              actor: OPERATOR,
              resourceType: "session",
              resourceId: id,
              payload: { user_id: userId, expires_at: new Date(expiresAt).toISOString() }
            })
            return { id, token: Redacted.make(text), expiresAt, userRole: user.user_role }
          })
        )
        .pipe(orUnavailable)
    })

    const named = (target: SessionTarget) => {
      if ("userId" in target) return sql`s.user_id = ${target.userId}`
      if ("token" in target) return sql`s.token_hash = ${tokenHash(Redacted.value(target.token))}`
      return isUuid(target.id) ? sql`s.id = ${target.id}::uuid` : sql`false`
    }

    const revoke = Effect.fn("DeveloperSessions.revoke")((target: SessionTarget) =>
      sql
        .withTransaction(
          Effect.gen(function* () {
            const at = new Date(now())
            const rows = yield* sql<{ readonly id: string; readonly user_id: string; readonly tenant: string }>`
              UPDATE public.developer_sessions s SET revoked_at = ${at} FROM public.users u
              WHERE u.id = s.user_id AND s.revoked_at IS NULL AND s.expires_at > ${at} AND ${named(target)}
              RETURNING s.id, s.user_id, u.tenant`
            for (const row of rows) {
              yield* audit({
                tenant: row.tenant,
                action: "session.revoked",
                actor: OPERATOR,
                resourceType: "session",
                resourceId: row.id,
                payload: { user_id: row.user_id }
              })
            }
            return rows.length
          })
        )
        .pipe(orUnavailable)
    )

    return DeveloperSessions.of({ authenticate, create, revoke })
  })
)
