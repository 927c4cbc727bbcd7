import { Clock, Effect, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { checkLiteral } from "#domain/egress.ts"
import { InvalidRequest, invalidFormat, invalidValue, notFound, type ValidationFailed } from "#domain/errors.ts"
import { isUuid, uuidv7 } from "#domain/ids.ts"
import type { RowScope } from "#domain/principal.ts"
import type { RowOwner } from "#domain/row-owner.ts"
import { sealedContexts } from "#domain/sealed-contexts.ts"
import { newWebhookSecret } from "#domain/webhooks.ts"
import { CallbackRegistry, maxCallbacks } from "#services/callbacks/CallbackRegistry.ts"
import { makeAudit } from "#services/provenance/audit.ts"
import type { Provenance } from "#services/provenance/Provenance.ts"
import { Secrets } from "#services/security/Secrets.ts"
import { orUnavailable } from "#services/storage/outage.ts"
import { rowsOf, rowsWithin } from "#services/storage/row-scope.ts"

export interface CallbackRegistryOptions {
  /** Whether callbacks may go to loopback and private networks. */
  readonly allowPrivate: boolean
}

interface CallbackRow {
  readonly id: string
  readonly url: string
  readonly events: ReadonlyArray<string>
  readonly created_at: Date
}

const tooMany = new InvalidRequest({
  code: "invalid_state",
  message: `There are ${maxCallbacks} callbacks already; delete one first.`
})

/** What is wrong with a URL. Names are judged at the socket, when they are resolved. */
const urlFault = (text: string, allowPrivate: boolean): ValidationFailed | undefined => {
  if (!URL.canParse(text)) return invalidFormat("url", "'url' must be an absolute URL.")
  const url = new URL(text)
  if (url.protocol !== "https:" && url.protocol !== "http:") {
    return invalidFormat("url", "'url' must be an http or https URL.")
  }
  if (url.username !== "" || url.password !== "") return invalidValue("url", "'url' must not hold credentials.")
  return checkLiteral(url.hostname, allowPrivate) === undefined
    ? undefined
    : invalidValue("url", "'url' must not be a private address.")
}

/** Callbacks in `public`, their secrets sealed. */
export const layer = (
  options: CallbackRegistryOptions
): Layer.Layer<CallbackRegistry, never, SqlClient.SqlClient | Provenance | Secrets> =>
  Layer.effect(
    CallbackRegistry,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const secrets = yield* Secrets
      const clock = yield* Clock.Clock
      const audit = yield* makeAudit

      const create = Effect.fn("CallbackRegistry.create")(function* (callback: {
        readonly owner: RowOwner
        readonly wholeInstance: boolean
        readonly url: string
        readonly events: ReadonlyArray<string>
        readonly secret: Redacted.Redacted<string> | undefined
        readonly actor: string
      }) {
        const fault = urlFault(callback.url, options.allowPrivate)
        if (fault !== undefined) return yield* fault
        const at = clock.currentTimeMillisUnsafe()
        const id = uuidv7(at)
        const secret = callback.secret ?? Redacted.make(newWebhookSecret())
        const sealed = secrets.seal(secret, sealedContexts.callback(id))
        const { owner } = callback
        const events = [...new Set(callback.events)]
        yield* sql
          .withTransaction(
            Effect.gen(function* () {
              yield* sql`SELECT pg_advisory_xact_lock(hashtext('sluice callbacks'),
                hashtext(${`${owner.tenant}\n${owner.organizationId}`}))`
              const rows =
                yield* sql`INSERT INTO public.callbacks (id, tenant, organization_id, whole_instance, url, events,
                  sealed, encryption_key_id, created_by, created_at)
                SELECT ${id}, ${owner.tenant}, ${owner.organizationId}, ${callback.wholeInstance}, ${callback.url},
                  ${events}::text[], ${sealed.bytes}, ${sealed.keyId}, ${callback.actor}, ${new Date(at)}
                WHERE (SELECT count(*) FROM public.callbacks WHERE ${rowsOf(sql, owner)}) < ${maxCallbacks}
                RETURNING id`
              if (rows.length === 0) return yield* tooMany
              yield* audit({
                tenant: owner.tenant,
                organizationId: owner.organizationId,
                action: "callback.created",
                actor: callback.actor,
                resourceType: "callback",
                resourceId: id,
                // The path and query of such a URL are often a secret themselves.
                payload: { events, origin: new URL(callback.url).origin }
              })
            })
          )
          .pipe(orUnavailable)
        return { id, secret }
      })

      const remove = Effect.fn("CallbackRegistry.remove")(function* (id: string, scope: RowScope, actor: string) {
        if (!isUuid(id)) return yield* notFound("callback")
        yield* sql
          .withTransaction(
            Effect.gen(function* () {
              const [row] = yield* sql<{ tenant: string; organization_id: string }>`DELETE FROM public.callbacks
                WHERE id = ${id} AND ${rowsWithin(sql, scope)} RETURNING tenant, organization_id`
              if (row === undefined) return yield* notFound("callback")
              yield* sql`DELETE FROM public.callback_deliveries WHERE callback_id = ${id}`
              yield* audit({
                tenant: row.tenant,
                organizationId: row.organization_id,
                action: "callback.deleted",
                actor,
                resourceType: "callback",
                resourceId: id,
                payload: {}
              })
            })
          )
          .pipe(orUnavailable)
      })

      const list = Effect.fn("CallbackRegistry.list")((scope: RowScope) =>
        sql<CallbackRow>`SELECT id, url, events, created_at FROM public.callbacks
          WHERE ${rowsWithin(sql, scope)} ORDER BY created_at DESC, id DESC LIMIT 10000`.pipe(
          Effect.map((rows) =>
            rows.map((row) => ({ id: row.id, url: row.url, events: row.events, createdAt: row.created_at.getTime() }))
          ),
          orUnavailable
        )
      )

      return CallbackRegistry.of({ create, remove, list })
    })
  )
