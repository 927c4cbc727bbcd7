import { Clock, Effect, Layer, Redacted } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { notFound } from "#domain/errors.ts"
import { isUuid, uuidv7 } from "#domain/ids.ts"
import type { JsonObject } from "#domain/json.ts"
import { overlay, splitSecrets } from "#domain/masking.ts"
import { sealedContexts } from "#domain/sealed-contexts.ts"
import { auditInstance } from "#layers/models/audit.ts"
import { followTable } from "#layers/models/TableSnapshot.ts"
import { type ModelDraft, ModelRegistry, type RegisteredModel } from "#services/models/ModelRegistry.ts"
import { Provenance } from "#services/provenance/Provenance.ts"
import { Secrets } from "#services/security/Secrets.ts"
import { ChangeFeed } from "#services/storage/ChangeFeed.ts"
import { orUnavailable } from "#services/storage/outage.ts"

/** The channel on which processes tell each other that the registry changed. */
export const MODELS_CHANNEL = "models_changed"

interface ModelRow {
  readonly id: string
  readonly model_name: string
  readonly gateway_params: JsonObject
  readonly sealed: Uint8Array | null
  readonly encryption_key_id: string | null
  readonly model_info: JsonObject
  readonly created_at: Date
}

const modelOf = (row: ModelRow, gatewayParams: JsonObject): RegisteredModel => ({
  id: row.id,
  modelName: row.model_name,
  gatewayParams,
  modelInfo: row.model_info,
  createdAt: row.created_at.getTime()
})

const shownModel = (row: ModelRow): RegisteredModel => modelOf(row, row.gateway_params)

const make = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const feed = yield* ChangeFeed
  const secrets = yield* Secrets
  const audit = auditInstance(yield* Provenance)

  const parameters = (row: ModelRow): Effect.Effect<JsonObject> =>
    row.sealed === null || row.encryption_key_id === null
      ? Effect.succeed(row.gateway_params)
      : Effect.map(
          secrets.open({ bytes: row.sealed, keyId: row.encryption_key_id }, sealedContexts.model(row.id)),
          (opened): JsonObject => ({ ...row.gateway_params, ...(JSON.parse(Redacted.value(opened)) as JsonObject) })
        )

  const rows = sql<ModelRow>`SELECT * FROM models ORDER BY created_at DESC, id DESC`

  // A row that no key opens is a deployment without credentials, not a gateway without models.
  const revealed = (row: ModelRow) =>
    parameters(row).pipe(
      Effect.catchCause((cause) =>
        Effect.as(
          Effect.logError("The secret parameters of a model cannot be opened", cause).pipe(
            Effect.annotateLogs({ model_id: row.id })
          ),
          Object.fromEntries(
            Object.entries(row.gateway_params).filter(([name]) => !(name in splitSecrets(row.gateway_params).secret))
          )
        )
      ),
      Effect.map((gatewayParams) => modelOf(row, gatewayParams))
    )

  const snapshot = yield* followTable(
    MODELS_CHANNEL,
    Effect.flatMap(rows, (found) => Effect.forEach(found, revealed))
  )

  /** A change in one transaction, which this process's own snapshot shows before the caller hears of it. */
  const changing = <A, E>(effect: Effect.Effect<A, E | SqlError.SqlError>) =>
    sql.withTransaction(Effect.tap(effect, feed.notify(MODELS_CHANNEL, ""))).pipe(
      // The change is made; a snapshot that cannot be read now follows by the notification.
      Effect.tap(Effect.ignore(snapshot.reload)),
      orUnavailable
    )

  const sealed = (id: string, secret: JsonObject) =>
    Object.keys(secret).length === 0
      ? { bytes: null, keyId: null }
      : secrets.seal(Redacted.make(JSON.stringify(secret)), sealedContexts.model(id))

  const insert = Effect.fnUntraced(function* (draft: ModelDraft, actor: string) {
    const now = yield* Clock.currentTimeMillis
    const id = uuidv7(now)
    const { secret, shown } = splitSecrets(draft.gatewayParams)
    const { bytes, keyId } = sealed(id, secret)
    const [row] = yield* sql<ModelRow>`
      INSERT INTO models
        (id, model_name, gateway_params, sealed, encryption_key_id, model_info, created_by, created_at, updated_at)
      VALUES (${id}, ${draft.modelName}, ${JSON.stringify(shown)}, ${bytes}, ${keyId},
        ${JSON.stringify(draft.modelInfo)}, ${actor}, ${new Date(now)}, ${new Date(now)})
      RETURNING *`
    if (row === undefined) return yield* Effect.die(new Error("no row came back"))
    return shownModel(row)
  })

  const insertAll = Effect.fnUntraced(function* (drafts: ReadonlyArray<ModelDraft>, actor: string, cause: string) {
    const made = yield* Effect.forEach(drafts, (draft) => insert(draft, actor))
    yield* audit(
      "model",
      "created",
      made.map(({ id }) => id),
      actor,
      { cause }
    )
    return made.length
  })

  const create = Effect.fn("ModelRegistry.create")((draft: ModelDraft, actor: string) =>
    changing(
      Effect.gen(function* () {
        const model = yield* insert(draft, actor)
        yield* audit("model", "created", [model.id], actor, { model_name: model.modelName })
        return model
      })
    )
  )

  const createMissing = Effect.fn("ModelRegistry.createMissing")((drafts: ReadonlyArray<ModelDraft>, actor: string) =>
    changing(
      Effect.gen(function* () {
        // Whoever registers in bulk waits here, so that two do not both find the same model missing.
        yield* sql`SELECT 1 FROM model_registry FOR UPDATE`
        const known = yield* sql<{
          readonly model: string | null
        }>`SELECT gateway_params->>'model' AS model FROM models`
        const taken = new Set(known.map(({ model }) => model))
        const missing = drafts.filter(({ gatewayParams }) => !taken.has(String(gatewayParams["model"])))
        return missing.length === 0 ? 0 : yield* insertAll(missing, actor, "synchronized")
      })
    )
  )

  const seed = Effect.fn("ModelRegistry.seed")((drafts: ReadonlyArray<ModelDraft>, actor: string) =>
    changing(
      Effect.gen(function* () {
        const first = yield* sql`UPDATE model_registry SET seeded_at = now() WHERE seeded_at IS NULL RETURNING 1`
        if (first.length === 0 || (yield* sql`SELECT 1 FROM models LIMIT 1`).length > 0) return false
        yield* insertAll(drafts, actor, "first start")
        return true
      })
    )
  )

  const update = Effect.fn("ModelRegistry.update")(
    (id: string, change: Parameters<ModelRegistry["Service"]["update"]>[1]) =>
      changing(
        Effect.gen(function* () {
          const [row] = isUuid(id) ? yield* sql<ModelRow>`SELECT * FROM models WHERE id = ${id}::uuid FOR UPDATE` : []
          if (row === undefined) return yield* notFound("model")
          const whole = change.gatewayParams === undefined ? undefined : yield* parameters(row)
          const { secret, shown } = splitSecrets(whole === undefined ? {} : overlay(whole, change.gatewayParams ?? {}))
          const { bytes, keyId } = sealed(id, secret)
          const info = change.modelInfo === undefined ? undefined : overlay(row.model_info, change.modelInfo)
          yield* sql`UPDATE models SET ${sql.join(
            ", ",
            false
          )([
            ...(change.modelName === undefined ? [] : [sql`model_name = ${change.modelName}`]),
            ...(whole === undefined
              ? []
              : [sql`gateway_params = ${JSON.stringify(shown)}, sealed = ${bytes}, encryption_key_id = ${keyId}`]),
            ...(info === undefined ? [] : [sql`model_info = ${JSON.stringify(info)}`]),
            sql`updated_at = ${new Date(yield* Clock.currentTimeMillis)}`
          ])} WHERE id = ${id}::uuid`
          yield* audit("model", "updated", [id], change.actor, {
            ...(change.modelName === undefined ? {} : { model_name: change.modelName }),
            fields: [...Object.keys(change.gatewayParams ?? {}), ...Object.keys(change.modelInfo ?? {})]
          })
        })
      )
  )

  const remove = Effect.fn("ModelRegistry.remove")((id: string, actor: string) =>
    changing(
      Effect.gen(function* () {
        const [row] = isUuid(id)
          ? yield* sql<{ readonly model_name: string }>`DELETE FROM models WHERE id = ${id}::uuid RETURNING model_name`
          : []
        if (row === undefined) return yield* notFound("model")
        yield* audit("model", "deleted", [id], actor, { model_name: row.model_name })
      })
    )
  )

  const find = Effect.fn("ModelRegistry.find")(function* (by: { readonly id?: string; readonly modelName?: string }) {
    const wanted =
      by.id !== undefined
        ? isUuid(by.id)
          ? sql`id = ${by.id}::uuid`
          : sql`false`
        : by.modelName === undefined
          ? sql`false`
          : sql`model_name = ${by.modelName}`
    const [row] = yield* orUnavailable(
      sql<ModelRow>`SELECT * FROM models WHERE ${wanted} ORDER BY created_at DESC, id DESC LIMIT 1`
    )
    return row === undefined ? yield* notFound("model") : shownModel(row)
  })

  return ModelRegistry.of({
    snapshot: snapshot.current,
    onChange: (listener) =>
      Effect.sync(() => {
        snapshot.subscribe(() => listener(snapshot.current()))
        listener(snapshot.current())
      }),
    create,
    createMissing,
    seed,
    update,
    remove,
    find,
    list: orUnavailable(Effect.map(rows, (found) => found.map(shownModel)))
  })
})

/** The registry in PostgreSQL. Parameters that are secrets are sealed there, and masked wherever they are shown. */
export const layer: Layer.Layer<
  ModelRegistry,
  SqlError.SqlError,
  SqlClient.SqlClient | ChangeFeed | Secrets | Provenance
> = Layer.effect(ModelRegistry, make)
