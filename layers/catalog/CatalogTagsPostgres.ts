import { createHash } from "node:crypto"
import { Clock, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { canonicalJson } from "#domain/canonical-json.ts"
import type { JsonObject } from "#domain/json.ts"
import type { RowOwner } from "#domain/row-owner.ts"
import { type CatalogTag, CatalogTags } from "#services/catalog/CatalogTags.ts"
import { makeAudit } from "#services/provenance/audit.ts"
import type { Provenance } from "#services/provenance/Provenance.ts"
import { orUnavailable } from "#services/storage/outage.ts"
import { rowsOf } from "#services/storage/row-scope.ts"
import { Tenants } from "#services/tenants/Tenants.ts"

const hashOf = (target: JsonObject): Buffer => createHash("sha256").update(canonicalJson(target)).digest()

/** Catalog tags in each tenant's schema. */
export const layer: Layer.Layer<CatalogTags, never, SqlClient.SqlClient | Provenance | Tenants> = Layer.effect(
  CatalogTags,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const tenants = yield* Tenants
    const clock = yield* Clock.Clock
    const append = yield* makeAudit

    const table = (owner: RowOwner) =>
      Effect.map(tenants.schemaOf(owner.tenant), (schema) => sql.literal(`${schema}.catalog_tags`))

    const audit = (action: string, owner: RowOwner, actor: string, hash: Buffer, payload: JsonObject) =>
      append({
        tenant: owner.tenant,
        organizationId: owner.organizationId,
        action,
        actor,
        resourceType: "catalog_tag",
        resourceId: hash.toString("hex"),
        payload
      })

    const set = Effect.fn("CatalogTags.set")(function* (owner: RowOwner, tag: CatalogTag, actor: string) {
      const tags = yield* table(owner)
      const hash = hashOf(tag.target)
      yield* sql
        .withTransaction(
          Effect.gen(function* () {
            const rows = yield* sql`INSERT INTO ${tags} AS t
                (tenant, organization_id, ns, key, target_hash, target, value, updated_by, updated_at)
              VALUES (${owner.tenant}, ${owner.organizationId}, ${tag.ns}, ${tag.key}, ${hash},
                ${JSON.stringify(tag.target)}, ${tag.value}, ${actor}, ${new Date(clock.currentTimeMillisUnsafe())})
              ON CONFLICT (tenant, organization_id, target_hash, ns, key) DO UPDATE
                SET value = excluded.value, updated_by = excluded.updated_by, updated_at = excluded.updated_at
                WHERE t.value <> excluded.value
              RETURNING 1`
            if (rows.length === 0) return
            yield* audit("catalog_tag.set", owner, actor, hash, { ...tag })
          })
        )
        .pipe(orUnavailable)
    })

    const remove = Effect.fn("CatalogTags.remove")(function* (
      owner: RowOwner,
      tag: { readonly ns: string | undefined; readonly key: string | undefined; readonly target: JsonObject },
      actor: string
    ) {
      const tags = yield* table(owner)
      const hash = hashOf(tag.target)
      yield* sql
        .withTransaction(
          Effect.gen(function* () {
            const rows = yield* sql<{ ns: string; key: string }>`DELETE FROM ${tags}
              WHERE ${sql.and([
                rowsOf(sql, owner),
                sql`target_hash = ${hash}`,
                ...(tag.ns === undefined ? [] : [sql`ns = ${tag.ns}`]),
                ...(tag.key === undefined ? [] : [sql`key = ${tag.key}`])
              ])} RETURNING ns, key`
            if (rows.length === 0) return
            yield* audit("catalog_tag.removed", owner, actor, hash, {
              removed: rows.map(({ key, ns }) => ({ key, ns })),
              target: tag.target
            })
          })
        )
        .pipe(orUnavailable)
    })

    const list = Effect.fn("CatalogTags.list")(function* (owner: RowOwner) {
      const tags = yield* table(owner)
      return yield* sql<CatalogTag>`SELECT ns, key, value, target FROM ${tags} WHERE ${rowsOf(sql, owner)}
        ORDER BY ns, key, target_hash LIMIT 10000`.pipe(orUnavailable)
    })

    return CatalogTags.of({ set, remove, list })
  })
)
