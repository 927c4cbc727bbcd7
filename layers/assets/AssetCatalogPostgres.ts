import { Clock, Effect, Layer } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import {
  assetBounds,
  type AssetKind,
  canonicalAround,
  itemPathOf,
  maxSample,
  snapshotIdsOf,
  splitDocument,
  suiteSnapshotsOf,
  weightOf
} from "#domain/assets.ts"
import { canonicalJson } from "#domain/canonical-json.ts"
import { InvalidRequest, missingField, notFound, ValidationFailed } from "#domain/errors.ts"
import { isUuid, uuidv7 } from "#domain/ids.ts"
import type { JsonObject } from "#domain/json.ts"
import { contentFault, documentFault, type StoredItem, storedItems } from "#layers/assets/document-check.ts"
import { documentColumns, makeDocuments, type VersionRow } from "#layers/assets/documents.ts"
import { makeProductionSample } from "#layers/assets/production-sample.ts"
import { textArray } from "#layers/assets/arrays.ts"
import { AssetCatalog, type AssetScope, type AssetVersion, type AssetWrite } from "#services/assets/AssetCatalog.ts"
import { makeAudit } from "#services/provenance/audit.ts"
import type { Provenance } from "#services/provenance/Provenance.ts"
import { orUnavailable } from "#services/storage/outage.ts"
import { rowsWithin } from "#services/storage/row-scope.ts"
import { Tenants } from "#services/tenants/Tenants.ts"
import type { UsageLedger } from "#services/usage/UsageLedger.ts"

interface AssetRow {
  readonly id: string
  readonly tenant: string
  readonly organization_id: string
  readonly kind: AssetKind
  readonly name: string
  readonly version: number
  readonly items: number
}

interface HeadRow {
  readonly content_version: number
  readonly content: string
  readonly item_count: number
  readonly item_bytes: bigint
}

/** What the next version brings. */
interface Change {
  /** Undefined: as in the version before. */
  readonly content: JsonObject | undefined
  readonly items: ReadonlyArray<StoredItem>
  /** Items that the asset has already are left out instead of refused. */
  readonly skipKnown: boolean
  readonly action: string
  readonly actor: string
  /** Where the items stand in the request. */
  readonly path: string
}

const tooMany = (path: string) =>
  new ValidationFailed({
    code: "value_too_long",
    message: `An asset holds at most ${assetBounds.items} entries and ${assetBounds.itemBytes} characters of them.`,
    param: path
  })

const known = (param: string) =>
  new InvalidRequest({ code: "already_exists", message: "The dataset has an entry of this id.", param })

/** The catalog in each tenant's schema. Whoever writes an asset holds its row until the commit. */
export const layer: Layer.Layer<AssetCatalog, never, SqlClient.SqlClient | Provenance | Tenants | UsageLedger> =
  Layer.effect(
    AssetCatalog,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const tenants = yield* Tenants
      const clock = yield* Clock.Clock
      const audit = yield* makeAudit
      const sample = yield* makeProductionSample
      const documents = makeDocuments(sql)
      const now = () => clock.currentTimeMillisUnsafe()

      const tablesOf = (tenant: string) =>
        Effect.map(tenants.schemaOf(tenant), (schema) => ({
          schema,
          assets: sql.literal(`${schema}.assets`),
          versions: sql.literal(`${schema}.asset_versions`),
          items: sql.literal(`${schema}.asset_items`)
        }))
      type Tables = Effect.Success<ReturnType<typeof tablesOf>>

      /** Which of the items the asset has already. */
      const knownIds = Effect.fnUntraced(function* (
        tables: Tables,
        asset: AssetRow,
        list: number,
        items: ReadonlyArray<StoredItem>
      ) {
        if (items.length === 0 || list !== 0) return new Set<string>()
        const rows = yield* sql<{ item_id: string }>`SELECT item_id FROM ${tables.items}
          WHERE asset_id = ${asset.id} AND item_list = ${list}
            AND item_id = ANY (${textArray(items.map(({ id }) => id))}::text[])`
        return new Set(rows.map(({ item_id }) => item_id))
      })

      const headOf = (tables: Tables, asset: AssetRow) =>
        Effect.map(
          sql<HeadRow>`SELECT v.content_version, c.content, v.item_count, v.item_bytes FROM ${tables.versions} v
            JOIN ${tables.versions} c ON c.asset_id = v.asset_id AND c.version = v.content_version
            WHERE v.asset_id = ${asset.id} AND v.version = ${asset.version}`,
          ([row]) => row
        )

      /** The next version, in a transaction that holds the asset's row. */
      const advance = Effect.fnUntraced(function* (
        tables: Tables,
        asset: AssetRow,
        change: Change
      ): Effect.fn.Return<
        { readonly version: AssetVersion; readonly added: number },
        InvalidRequest | ValidationFailed | SqlError.SqlError
      > {
        const version = asset.version + 1
        const head = asset.version === 0 ? undefined : yield* headOf(tables, asset)
        const list = asset.kind === "dataset" ? 0 : version
        const kept = list === 0 && head !== undefined ? head : { item_count: 0, item_bytes: 0n }
        const ids = yield* knownIds(tables, asset, list, change.items)
        const clash = change.skipKnown ? -1 : change.items.findIndex(({ id }) => ids.has(id))
        if (clash >= 0) return yield* known(`${change.path}.${clash}.id`)
        const items = ids.size === 0 ? change.items : change.items.filter(({ id }) => !ids.has(id))
        const count = kept.item_count + items.length
        const bytes = Number(kept.item_bytes) + items.reduce((sum, { text }) => sum + text.length, 0)
        if (count > assetBounds.items || bytes > assetBounds.itemBytes) return yield* tooMany(change.path)

        if (items.length > 0) {
          yield* sql`INSERT INTO ${tables.items} (asset_id, ordinal, item_list, item_id, weight, item)
            SELECT ${asset.id}, ${asset.items}::int + n, ${list}, item_id, weight, item
            FROM unnest(${textArray(items.map(({ id }) => id))}::text[],
              ${textArray(items.map(({ weight }) => String(weight)))}::float8[],
              ${textArray(items.map(({ text }) => text))}::text[])
              WITH ORDINALITY AS t (item_id, weight, item, n)`
        }
        const last = asset.items + items.length
        const content = change.content ?? (JSON.parse(head?.content ?? "{}") as JsonObject)
        const [before, after] = canonicalAround(asset.kind, content)
        const [hashed] = yield* sql<{ hash: string }>`SELECT encode(sha256(convert_to(
            ${before}::text || coalesce(string_agg(item, ',' ORDER BY ordinal), '') || ${after}::text, 'UTF8')), 'hex') AS hash
          FROM ${tables.items} WHERE asset_id = ${asset.id} AND item_list = ${list} AND ordinal <= ${last}`
        const contentHash = hashed?.hash ?? ""
        const at = now()
        const snapshots = asset.kind === "eval_suite" ? suiteSnapshotsOf(content) : snapshotIdsOf(content)
        const own = change.content === undefined ? null : canonicalJson(change.content)
        yield* sql`INSERT INTO ${tables.versions} (asset_id, version, content_version, content, content_hash, item_list,
            item_count, item_bytes, last_item, snapshot_ids, created_by, created_at)
          VALUES (${asset.id}, ${version}, ${own === null ? (head?.content_version ?? version) : version}, ${own},
            ${contentHash}, ${list}, ${count}, ${bytes}, ${last}, ${textArray(snapshots)}::text[], ${change.actor},
            ${new Date(at)})`
        yield* sql`UPDATE ${tables.assets} SET version = ${version}, items = ${last}, updated_at = ${new Date(at)}
          WHERE id = ${asset.id}`
        yield* audit({
          tenant: asset.tenant,
          organizationId: asset.organization_id,
          action: change.action,
          actor: change.actor,
          resourceType: asset.kind,
          resourceId: asset.id,
          payload: { added: items.length, content_hash: contentHash, item_count: count, name: asset.name, version }
        })
        return {
          version: {
            assetId: asset.id,
            kind: asset.kind,
            owner: { tenant: asset.tenant, organizationId: asset.organization_id },
            name: asset.name,
            version,
            contentHash,
            itemCount: count,
            createdBy: change.actor,
            createdAt: at
          },
          added: items.length
        }
      })

      const newId = () => uuidv7(now())

      const put = Effect.fn("AssetCatalog.put")(function* (write: AssetWrite) {
        const { actor, document, kind, owner, path } = write
        const fault = documentFault(kind, document, path)
        if (fault !== undefined) return yield* fault
        const { content, items } = splitDocument(kind, document)
        const tooLong = contentFault(canonicalJson(content), path)
        if (tooLong !== undefined) return yield* tooLong
        const own = content["name"]
        const name = write.name ?? (typeof own === "string" ? own : undefined)
        if (name === undefined) return yield* missingField("name")
        const itemPath = `${path}.${itemPathOf(kind)}`
        const nameCase = kind === "eval_suite" ? caseNames() : newId
        const stored = storedItems(items, itemPath, nameCase, weightOf)
        if (stored instanceof ValidationFailed) return yield* stored
        const tables = yield* tablesOf(owner.tenant)
        const at = now()
        return yield* sql
          .withTransaction(
            Effect.gen(function* () {
              yield* sql`INSERT INTO ${tables.assets} (id, tenant, organization_id, kind, name, version, items, created_by,
                  created_at, updated_at)
                VALUES (${uuidv7(at)}, ${owner.tenant}, ${owner.organizationId}, ${kind}, ${name}, 0, 0, ${actor},
                  ${new Date(at)}, ${new Date(at)})
                ON CONFLICT (tenant, organization_id, kind, name) DO NOTHING`
              const [asset] = yield* sql<AssetRow>`SELECT id, tenant, organization_id, kind, name, version, items
                FROM ${tables.assets} WHERE tenant = ${owner.tenant} AND organization_id = ${owner.organizationId}
                  AND kind = ${kind} AND name = ${name} FOR UPDATE`
              if (asset === undefined) return yield* Effect.die(new Error("an asset vanished"))
              const action = asset.version === 0 ? `${kind}.created` : `${kind}.updated`
              return yield* advance(tables, asset, {
                content,
                items: stored,
                skipKnown: false,
                action,
                actor,
                path: itemPath
              })
            })
          )
          .pipe(orUnavailable)
      })

      /** Runs in a transaction that holds a dataset of the scope. */
      const onDataset = <A, E>(
        scope: AssetScope,
        assetId: string,
        run: (tables: Tables, asset: AssetRow) => Effect.Effect<A, E | SqlError.SqlError>
      ) =>
        Effect.gen(function* () {
          if (!isUuid(assetId)) return yield* notFound("dataset")
          const tables = yield* tablesOf(scope.tenant)
          return yield* sql
            .withTransaction(
              Effect.gen(function* () {
                const [asset] = yield* sql<AssetRow>`SELECT id, tenant, organization_id, kind, name, version, items
                  FROM ${tables.assets} WHERE id = ${assetId} AND kind = 'dataset' AND ${rowsWithin(sql, scope)} FOR UPDATE`
                if (asset === undefined) return yield* notFound("dataset")
                return yield* run(tables, asset)
              })
            )
            .pipe(orUnavailable)
        })

      const appendItems = Effect.fn("AssetCatalog.appendItems")(function* (
        scope: AssetScope,
        assetId: string,
        items: ReadonlyArray<JsonObject>,
        actor: string
      ) {
        return yield* onDataset(scope, assetId, (tables, asset) =>
          Effect.gen(function* () {
            const head = yield* headOf(tables, asset)
            const content = JSON.parse(head?.content ?? "{}") as JsonObject
            // The stored items were checked when they came: the merged document is valid if the new ones are.
            const fault = documentFault("dataset", { ...content, provenance: { items } }, "")
            if (fault !== undefined) return yield* renamed(fault)
            const stored = storedItems(items, "items", newId, weightOf)
            if (stored instanceof ValidationFailed) return yield* stored
            return yield* advance(tables, asset, {
              content: undefined,
              items: stored,
              skipKnown: false,
              action: "dataset.items_appended",
              actor,
              path: "items"
            })
          })
        )
      })

      const sampleFromProduction = Effect.fn("AssetCatalog.sampleFromProduction")(function* (
        scope: AssetScope,
        assetId: string,
        size: number,
        actor: string
      ) {
        yield* sample.ready
        return yield* onDataset(scope, assetId, (tables, asset) =>
          Effect.gen(function* () {
            const items = yield* sample.take(tables.schema, asset, Math.min(size, maxSample))
            const stored = storedItems(items, "sample_size", newId, weightOf)
            if (stored instanceof ValidationFailed) return yield* stored
            if (stored.length === 0) return 0
            const { added } = yield* advance(tables, asset, {
              content: undefined,
              items: stored,
              skipKnown: true,
              action: "dataset.sampled",
              actor,
              path: "sample_size"
            })
            return added
          })
        )
      })

      const find = Effect.fn("AssetCatalog.find")(function* (
        scope: AssetScope,
        kind: AssetKind,
        assetId: string,
        version?: number
      ) {
        const absent = notFound(kind.replaceAll("_", " "))
        if (!isUuid(assetId)) return yield* absent
        const tables = yield* tablesOf(scope.tenant)
        const rows = yield* sql<VersionRow>`SELECT ${documentColumns(sql)} FROM ${tables.assets} a
          JOIN ${tables.versions} v ON v.asset_id = a.id AND v.version = ${version === undefined ? sql`a.version` : sql`${version}`}
          WHERE a.id = ${assetId} AND a.kind = ${kind} AND ${rowsWithin(sql, scope)}`.pipe(orUnavailable)
        const [found] = yield* documents.whole(tables.schema, rows).pipe(orUnavailable)
        return found ?? (yield* absent)
      })

      const list = Effect.fn("AssetCatalog.list")(function* (scope: AssetScope, kind: AssetKind, limit: number) {
        const tables = yield* tablesOf(scope.tenant)
        const rows = yield* sql<VersionRow>`SELECT ${documentColumns(sql)} FROM ${tables.assets} a
          JOIN ${tables.versions} v ON v.asset_id = a.id AND v.version = a.version
          WHERE a.kind = ${kind} AND ${rowsWithin(sql, scope)}
          ORDER BY a.created_at DESC, a.id DESC LIMIT ${limit}`.pipe(orUnavailable)
        return yield* documents.abridged(tables.schema, rows).pipe(orUnavailable)
      })

      const versions = Effect.fn("AssetCatalog.versions")(function* (
        scope: AssetScope,
        kind: AssetKind,
        assetId: string
      ) {
        const absent = notFound(kind.replaceAll("_", " "))
        if (!isUuid(assetId)) return yield* absent
        const tables = yield* tablesOf(scope.tenant)
        const rows = yield* sql<VersionRow>`SELECT ${documentColumns(sql)} FROM ${tables.assets} a
          JOIN ${tables.versions} v ON v.asset_id = a.id
          WHERE a.id = ${assetId} AND a.kind = ${kind} AND ${rowsWithin(sql, scope)}
          ORDER BY v.version DESC LIMIT 500`.pipe(orUnavailable)
        if (rows.length === 0) return yield* absent
        return yield* documents.abridged(tables.schema, rows).pipe(orUnavailable)
      })

      return AssetCatalog.of({
        put: (write) => Effect.map(put(write), ({ version }) => version),
        appendItems: (scope, assetId, items, actor) =>
          Effect.map(appendItems(scope, assetId, items, actor), ({ version }) => version),
        sampleFromProduction,
        find,
        list,
        versions
      })
    })
  )

/** The cases of a suite that have no id are counted, so that the same suite names them alike in every version. */
const caseNames = () => {
  let count = 0
  return () => `case-${++count}`
}

/** The items stand elsewhere in the request than in the document. */
const renamed = (fault: ValidationFailed): ValidationFailed => {
  const param = fault.param === "" ? "items" : fault.param?.replace(/^provenance\.items/, "items")
  return new ValidationFailed({
    code: fault.code,
    message: fault.message.replace(`'${fault.param}'`, `'${param}'`),
    param
  })
}
