import { Clock, Effect, Layer, Redacted } from "effect"
import { SqlClient, type SqlError, type Statement } from "effect/sql"
import { InvalidRequest, notFound } from "#domain/errors.ts"
import { isUuid, uuidv7 } from "#domain/ids.ts"
import type { JsonObject } from "#domain/json.ts"
import { maskObject, overlay } from "#domain/masking.ts"
import { sealedContexts } from "#domain/sealed-contexts.ts"
import { auditInstance } from "#layers/models/audit.ts"
import { followTable } from "#layers/models/TableSnapshot.ts"
import { type CredentialTarget, CredentialVault, type MaskedCredential } from "#services/models/CredentialVault.ts"
import { Provenance } from "#services/provenance/Provenance.ts"
import { Secrets } from "#services/security/Secrets.ts"
import { ChangeFeed } from "#services/storage/ChangeFeed.ts"
import { orUnavailable } from "#services/storage/outage.ts"

/** The channel on which processes tell each other that credentials changed. */
export const CREDENTIALS_CHANNEL = "credentials_changed"

interface CredentialRow {
  readonly id: string
  readonly credential_name: string | null
  readonly sealed: Uint8Array
  readonly encryption_key_id: string
  readonly created_by: string
  readonly created_at: Date
  readonly updated_at: Date
}

const maskedOf = (row: CredentialRow, info: JsonObject): MaskedCredential => ({
  id: row.id,
  credentialName: row.credential_name,
  credentialInfo: maskObject(info),
  createdBy: row.created_by,
  createdAt: row.created_at.getTime(),
  updatedAt: row.updated_at.getTime()
})

const nameTaken = new InvalidRequest({
  code: "already_exists",
  message: "A credential with this name already exists.",
  param: "credential_name"
})

const make = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const feed = yield* ChangeFeed
  const secrets = yield* Secrets
  const audit = auditInstance(yield* Provenance)

  const rows = sql<CredentialRow>`SELECT * FROM credentials ORDER BY created_at DESC, id DESC`
  const seal = (id: string, info: JsonObject) =>
    secrets.seal(Redacted.make(JSON.stringify(info)), sealedContexts.credential(id))
  const open = (row: CredentialRow): Effect.Effect<JsonObject> =>
    Effect.map(
      secrets.open({ bytes: row.sealed, keyId: row.encryption_key_id }, sealedContexts.credential(row.id)),
      (opened) => JSON.parse(Redacted.value(opened)) as JsonObject
    )
  // One credential that no key opens must not take the others with it.
  const openOr = (row: CredentialRow): Effect.Effect<JsonObject | undefined> =>
    Effect.catchCause(open(row), (cause) =>
      Effect.as(
        Effect.logError("A credential cannot be opened", cause).pipe(Effect.annotateLogs({ credential_id: row.id })),
        undefined
      )
    )

  const load = Effect.gen(function* () {
    const values = new Map<string, Redacted.Redacted<JsonObject>>()
    for (const row of yield* rows) {
      const info = row.credential_name === null ? undefined : yield* openOr(row)
      if (row.credential_name !== null && info !== undefined) values.set(row.credential_name, Redacted.make(info))
    }
    return values
  })
  const snapshot = yield* followTable(CREDENTIALS_CHANNEL, load)

  const changing = <A, E>(effect: Effect.Effect<A, E | SqlError.SqlError>) =>
    sql.withTransaction(Effect.tap(effect, feed.notify(CREDENTIALS_CHANNEL, ""))).pipe(
      // The change is made; a snapshot that cannot be read now follows by the notification.
      Effect.tap(Effect.ignore(snapshot.reload)),
      Effect.catchIf(
        (error) => (error as { readonly reason?: { readonly _tag?: string } }).reason?._tag === "UniqueViolation",
        () => Effect.fail(nameTaken)
      ),
      orUnavailable
    )

  const named = (target: CredentialTarget): Statement.Fragment => {
    if (target.id !== undefined) return isUuid(target.id) ? sql`id = ${target.id}::uuid` : sql`false`
    return target.credentialName === undefined ? sql`false` : sql`credential_name = ${target.credentialName}`
  }

  const lock = (target: CredentialTarget) =>
    sql<CredentialRow>`SELECT * FROM credentials WHERE ${named(target)} FOR UPDATE`

  const insert = Effect.fnUntraced(function* (credentialName: string | null, info: JsonObject, actor: string) {
    const now = yield* Clock.currentTimeMillis
    const id = uuidv7(now)
    const { bytes, keyId } = seal(id, info)
    const [row] = yield* sql<CredentialRow>`
      INSERT INTO credentials (id, credential_name, sealed, encryption_key_id, created_by, created_at, updated_at)
      VALUES (${id}, ${credentialName}, ${bytes}, ${keyId}, ${actor}, ${new Date(now)}, ${new Date(now)}) RETURNING *`
    if (row === undefined) return yield* Effect.die(new Error("no row came back"))
    yield* audit("credential", "created", [id], actor, { credential_name: credentialName, fields: Object.keys(info) })
    return row
  })

  const write = Effect.fnUntraced(function* (
    row: CredentialRow,
    change: { readonly credentialName?: string; readonly info?: JsonObject; readonly actor: string }
  ) {
    const sealed = change.info === undefined ? undefined : seal(row.id, change.info)
    const [written] = yield* sql<CredentialRow>`UPDATE credentials SET ${sql.join(
      ", ",
      false
    )([
      ...(change.credentialName === undefined ? [] : [sql`credential_name = ${change.credentialName}`]),
      ...(sealed === undefined ? [] : [sql`sealed = ${sealed.bytes}, encryption_key_id = ${sealed.keyId}`]),
      sql`updated_at = ${new Date(yield* Clock.currentTimeMillis)}`
    ])} WHERE id = ${row.id}::uuid RETURNING *`
    yield* audit("credential", "updated", [row.id], change.actor, {
      ...(change.credentialName === undefined ? {} : { credential_name: change.credentialName }),
      ...(change.info === undefined ? {} : { fields: Object.keys(change.info) })
    })
    return written ?? row
  })

  const create = Effect.fn("CredentialVault.create")(
    (credential: Parameters<CredentialVault["Service"]["create"]>[0]) =>
      changing(
        Effect.map(insert(credential.credentialName, credential.credentialInfo, credential.actor), ({ id }) => id)
      )
  )

  const put = Effect.fn("CredentialVault.put")((credential: Parameters<CredentialVault["Service"]["put"]>[0]) => {
    const { actor, credentialInfo, credentialName } = credential
    const once = changing(
      Effect.gen(function* () {
        const [row] = yield* lock({ credentialName })
        const stored =
          row === undefined
            ? yield* insert(credentialName, credentialInfo, actor)
            : yield* write(row, { info: credentialInfo, actor })
        return maskedOf(stored, credentialInfo)
      })
    )
    // Somebody else may have created the name between the look and the insert; then there is a row to write.
    return Effect.retry(once, { times: 1, while: (error) => error.code === "already_exists" })
  })

  const update = Effect.fn("CredentialVault.update")(
    (target: CredentialTarget, change: Parameters<CredentialVault["Service"]["update"]>[1]) =>
      changing(
        Effect.gen(function* () {
          const [row] = yield* lock(target)
          if (row === undefined) return yield* notFound("credential")
          const info =
            change.credentialInfo === undefined ? undefined : overlay(yield* open(row), change.credentialInfo)
          yield* write(row, {
            ...(target.id === undefined || change.credentialName === undefined
              ? {}
              : { credentialName: change.credentialName }),
            ...(info === undefined ? {} : { info }),
            actor: change.actor
          })
        })
      )
  )

  const remove = Effect.fn("CredentialVault.remove")((target: CredentialTarget, actor: string) =>
    changing(
      Effect.gen(function* () {
        const [row] = yield* sql<CredentialRow>`DELETE FROM credentials WHERE ${named(target)} RETURNING *`
        if (row === undefined) return yield* notFound("credential")
        yield* audit("credential", "deleted", [row.id], actor, { credential_name: row.credential_name })
      })
    )
  )

  return CredentialVault.of({
    create,
    put,
    update,
    remove,
    list: orUnavailable(
      Effect.flatMap(rows, (found) =>
        Effect.forEach(found, (row) => Effect.map(openOr(row), (info) => maskedOf(row, info ?? {})))
      )
    ),
    reveal: (credentialName) => snapshot.current().get(credentialName),
    onChange: (listener) => Effect.sync(() => snapshot.subscribe(listener))
  })
})

/**
 * Credentials in PostgreSQL, each sealed as one text that only its own row opens. Every process holds the named ones
 * opened in memory and follows the changes of the others.
 */
export const layer: Layer.Layer<
  CredentialVault,
  SqlError.SqlError,
  SqlClient.SqlClient | ChangeFeed | Secrets | Provenance
> = Layer.effect(CredentialVault, make)
