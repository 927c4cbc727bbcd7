/** The versions of suites and datasets that a job is made of. */
import { Effect } from "effect"
import type { SqlClient, SqlError } from "effect/sql"
import { suiteSnapshotsOf } from "#domain/assets.ts"
import { invalidValue, type ValidationFailed } from "#domain/errors.ts"
import { defaultPassThreshold, type PinnedSnapshot } from "#domain/evals.ts"
import { isUuid } from "#domain/ids.ts"
import type { JsonObject } from "#domain/json.ts"
import type { RowScope } from "#domain/principal.ts"
import { rowsWithin } from "#services/storage/row-scope.ts"

/** The items of one version of an asset. */
export interface PinnedItems {
  readonly assetId: string
  readonly version: number
  readonly contentHash: string
  readonly itemList: number
  readonly lastItem: number
  readonly itemCount: number
}

export interface PinnedSuite extends PinnedItems {
  readonly passThreshold: number
  readonly snapshotIds: ReadonlyArray<string>
}

interface PinRow {
  readonly asset_id: string
  readonly version: number
  readonly content_hash: string
  readonly item_list: number
  readonly last_item: number
  readonly item_count: number
}

const itemsOf = (row: PinRow): PinnedItems => ({
  assetId: row.asset_id,
  version: row.version,
  contentHash: row.content_hash,
  itemList: row.item_list,
  lastItem: row.last_item,
  itemCount: row.item_count
})

const numbered = /^([0-9a-f-]{36})@([1-9]\d{0,8})$/i
const hashed = /^[0-9a-f]{64}$/

/** Finds what a job names, in one tenant's schema and within what its maker sees. */
export const makePins = (sql: SqlClient.SqlClient, schema: string, scope: RowScope) => {
  const assets = sql.literal(`${schema}.assets`)
  const versions = sql.literal(`${schema}.asset_versions`)
  const columns = sql.literal("v.asset_id, v.version, v.content_hash, v.item_list, v.last_item, v.item_count")

  const suite = Effect.fnUntraced(function* (
    id: string,
    version: number | undefined
  ): Effect.fn.Return<PinnedSuite, ValidationFailed | SqlError.SqlError> {
    const [row] = isUuid(id)
      ? yield* sql<PinRow & { readonly content: string }>`SELECT ${columns}, c.content FROM ${assets} a
          JOIN ${versions} v ON v.asset_id = a.id AND v.version = ${version === undefined ? sql`a.version` : sql`${version}`}
          JOIN ${versions} c ON c.asset_id = v.asset_id AND c.version = v.content_version
          WHERE a.id = ${id} AND a.kind = 'eval_suite' AND ${rowsWithin(sql, scope)}`
      : []
    if (row === undefined) {
      return yield* version === undefined
        ? invalidValue("eval_suite_id", "There is no such eval suite.")
        : invalidValue("eval_suite_version", "There is no such eval suite, or not this version of it.")
    }
    const content = JSON.parse(row.content) as JsonObject
    const threshold = content["pass_threshold"]
    return {
      ...itemsOf(row),
      passThreshold: typeof threshold === "number" ? threshold : defaultPassThreshold,
      snapshotIds: suiteSnapshotsOf(content)
    }
  })

  const datasets = (condition: ReturnType<typeof sql.and>) =>
    Effect.map(
      sql<PinRow>`SELECT ${columns} FROM ${assets} a JOIN ${versions} v ON v.asset_id = a.id
        WHERE a.kind = 'dataset' AND ${rowsWithin(sql, scope)} AND ${condition}
        ORDER BY v.created_at DESC, v.asset_id DESC, v.version DESC LIMIT 1`,
      ([row]) => row
    )

  const snapshot = Effect.fnUntraced(function* (id: string) {
    const [, assetId, version] = numbered.exec(id) ?? []
    if (assetId !== undefined && version !== undefined && isUuid(assetId)) {
      return yield* datasets(sql`a.id = ${assetId} AND v.version = ${Number(version)}`)
    }
    const named = isUuid(id)
      ? yield* datasets(sql`a.id = ${id} AND v.version = a.version`)
      : hashed.test(id)
        ? yield* datasets(sql`v.content_hash = ${id}`)
        : undefined
    return named ?? (yield* datasets(sql`v.snapshot_ids <> '{}' AND v.snapshot_ids @> ARRAY[${id}]`))
  })

  /** What each id names; of two versions of one dataset the later holds the items of the earlier. */
  const snapshots = Effect.fnUntraced(function* (
    ids: ReadonlyArray<string>,
    param: (index: number) => string
  ): Effect.fn.Return<
    { readonly pinned: ReadonlyArray<PinnedSnapshot>; readonly items: ReadonlyArray<PinnedItems> },
    ValidationFailed | SqlError.SqlError
  > {
    const pinned: Array<PinnedSnapshot> = []
    const items = new Map<string, PinnedItems>()
    for (const [index, id] of ids.entries()) {
      const row = yield* snapshot(id)
      if (row === undefined) return yield* invalidValue(param(index), "There is no such dataset snapshot.")
      const found = itemsOf(row)
      pinned.push({ snapshotId: id, assetId: found.assetId, version: found.version, contentHash: found.contentHash })
      const other = items.get(found.assetId)
      if (other === undefined || other.version < found.version) items.set(found.assetId, found)
    }
    return { pinned, items: [...items.values()] }
  })

  return { suite, snapshots }
}
