/** Reading versions of assets with their documents, within what one answer may hold. */
import type { SqlClient, SqlError } from "effect/sql"
import { Effect } from "effect"
import { type AssetKind, joinDocument } from "#domain/assets.ts"
import type { JsonObject } from "#domain/json.ts"
import { textArray } from "#layers/assets/arrays.ts"
import type { AssetDocument, AssetVersion } from "#services/assets/AssetCatalog.ts"

export interface VersionRow {
  readonly id: string
  readonly tenant: string
  readonly organization_id: string
  readonly kind: AssetKind
  readonly name: string
  readonly asset_created_at: Date
  readonly version: number
  readonly content_hash: string
  readonly item_count: number
  readonly item_bytes: bigint
  readonly created_by: string
  readonly created_at: Date
}

interface BodyRow {
  readonly n: number
  readonly content: string
  readonly items: string | null
}

/** Characters of documents in one answer. */
const answerBudget = 8 * 1024 * 1024

/** How much of a version's items a list shows. */
const shownItems: Readonly<Record<AssetKind, { readonly count: number; readonly bytes: number }>> = {
  dataset: { count: 100, bytes: 64 * 1024 },
  eval_suite: { count: 1_000_000, bytes: answerBudget },
  pipeline_definition: { count: 0, bytes: 0 }
}

export const documentColumns = (sql: SqlClient.SqlClient) =>
  sql.literal(`a.id, a.tenant, a.organization_id, a.kind, a.name, a.created_at AS asset_created_at, v.version,
    v.content_hash, v.item_count, v.item_bytes, v.created_by, v.created_at`)

export const versionOf = (row: VersionRow): AssetVersion => ({
  assetId: row.id,
  kind: row.kind,
  owner: { tenant: row.tenant, organizationId: row.organization_id },
  name: row.name,
  version: row.version,
  contentHash: row.content_hash,
  itemCount: row.item_count,
  createdBy: row.created_by,
  createdAt: row.created_at.getTime()
})

export const makeDocuments = (sql: SqlClient.SqlClient) => {
  const bodies = (
    schema: string,
    rows: ReadonlyArray<VersionRow>,
    shown: { readonly count: number; readonly bytes: number }
  ) =>
    sql.unsafe<BodyRow>(
      `SELECT t.n::int AS n, c.content, i.items
      FROM unnest($1::text[]::uuid[], $2::text[]::int[]) WITH ORDINALITY AS t (id, version, n)
      JOIN ${schema}.asset_versions v ON v.asset_id = t.id AND v.version = t.version
      JOIN ${schema}.asset_versions c ON c.asset_id = v.asset_id AND c.version = v.content_version
      CROSS JOIN LATERAL (
        SELECT string_agg(item, ',' ORDER BY ordinal) AS items FROM (
          SELECT item, ordinal, sum(length(item)) OVER (ORDER BY ordinal) AS so_far FROM ${schema}.asset_items
          WHERE asset_id = v.asset_id AND item_list = v.item_list AND ordinal <= v.last_item
          ORDER BY ordinal LIMIT $3::text::int
        ) AS first WHERE so_far <= $4::text::bigint
      ) AS i`,
      [
        textArray(rows.map(({ id }) => id)),
        textArray(rows.map(({ version }) => String(version))),
        String(shown.count),
        String(shown.bytes)
      ]
    )

  const read = Effect.fnUntraced(function* (
    schema: string,
    rows: ReadonlyArray<VersionRow>,
    wanted: ReadonlyArray<VersionRow>,
    shown: { readonly count: number; readonly bytes: number }
  ): Effect.fn.Return<ReadonlyArray<AssetDocument>, SqlError.SqlError> {
    const found = wanted.length === 0 ? [] : yield* bodies(schema, wanted, shown)
    const documents = new Map(
      found.map(({ content, items, n }) => {
        const row = wanted[n - 1]!
        const parts = {
          content: JSON.parse(content) as JsonObject,
          items: JSON.parse(`[${items ?? ""}]`) as ReadonlyArray<JsonObject>
        }
        return [row, joinDocument(row.kind, parts)]
      })
    )
    return rows.map((row) => ({
      ...versionOf(row),
      assetCreatedAt: row.asset_created_at.getTime(),
      content: documents.get(row)
    }))
  })

  return {
    /** Everything. */
    whole: (schema: string, rows: ReadonlyArray<VersionRow>) =>
      read(schema, rows, rows, { count: 1_000_000, bytes: 2 ** 40 }),
    /** As much as one answer may hold. */
    abridged: (schema: string, rows: ReadonlyArray<VersionRow>) => {
      const shown = rows[0] === undefined ? { count: 0, bytes: 0 } : shownItems[rows[0].kind]
      let spent = 0
      const wanted = rows.filter((row) => {
        spent += 1024 + Math.min(Number(row.item_bytes), shown.bytes)
        return spent <= answerBudget
      })
      return read(schema, rows, wanted, shown)
    }
  }
}
