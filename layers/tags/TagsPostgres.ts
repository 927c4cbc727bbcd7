import { Clock, Effect, Layer } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { InvalidRequest, notFound } from "#domain/errors.ts"
import { isUuid, uuidv7 } from "#domain/ids.ts"
import type { JsonObject } from "#domain/json.ts"
import type { RowScope } from "#domain/principal.ts"
import type { RowOwner } from "#domain/row-owner.ts"
import { makeAudit } from "#services/provenance/audit.ts"
import type { Provenance } from "#services/provenance/Provenance.ts"
import { orUnavailable } from "#services/storage/outage.ts"
import { rowsOf, rowsWithin } from "#services/storage/row-scope.ts"
import { type TagChange, Tags, type TagTarget } from "#services/tags/Tags.ts"

interface TagRow {
  readonly id: string
  readonly tenant: string
  readonly organization_id: string
  readonly name: string
  readonly color: string
  readonly description: string
  readonly created_at: Date
}

const nameTaken = new InvalidRequest({
  code: "already_exists",
  message: "A tag of this name exists.",
  param: "tag_name"
})

/** Tags in `public`. */
export const layer: Layer.Layer<Tags, never, SqlClient.SqlClient | Provenance> = Layer.effect(
  Tags,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const clock = yield* Clock.Clock
    const append = yield* makeAudit
    const now = () => new Date(clock.currentTimeMillisUnsafe())

    const audit = (
      action: string,
      row: Pick<TagRow, "id" | "tenant" | "organization_id">,
      actor: string,
      payload: JsonObject
    ) =>
      append({
        tenant: row.tenant,
        organizationId: row.organization_id,
        action,
        actor,
        resourceType: "tag",
        resourceId: row.id,
        payload
      })

    const targeted = (target: TagTarget, owner: RowOwner, scope: RowScope) => {
      if ("name" in target) return sql`name = ${target.name} AND ${rowsOf(sql, owner)}`
      return isUuid(target.id) ? sql`id = ${target.id} AND ${rowsWithin(sql, scope)}` : sql`false`
    }

    const change = <E>(
      target: TagTarget,
      owner: RowOwner,
      scope: RowScope,
      run: (row: TagRow) => Effect.Effect<void, E | SqlError.SqlError>
    ) =>
      sql
        .withTransaction(
          Effect.gen(function* () {
            const [row] = yield* sql<TagRow>`SELECT id, tenant, organization_id, name, color, description, created_at
              FROM public.tags WHERE ${targeted(target, owner, scope)} FOR UPDATE`
            if (row === undefined) return yield* notFound("tag")
            yield* run(row)
          })
        )
        .pipe(orUnavailable)

    const create = Effect.fn("Tags.create")(function* (
      owner: RowOwner,
      tag: { readonly name: string; readonly color: string; readonly description: string },
      actor: string
    ) {
      const at = now()
      const id = uuidv7(at.getTime())
      yield* sql
        .withTransaction(
          Effect.gen(function* () {
            const rows = yield* sql`INSERT INTO public.tags
                (id, tenant, organization_id, name, color, description, created_by, created_at, updated_at)
              VALUES (${id}, ${owner.tenant}, ${owner.organizationId}, ${tag.name}, ${tag.color}, ${tag.description},
                ${actor}, ${at}, ${at}) ON CONFLICT (tenant, organization_id, name) DO NOTHING RETURNING id`
            if (rows.length === 0) return yield* nameTaken
            yield* audit("tag.created", { id, tenant: owner.tenant, organization_id: owner.organizationId }, actor, {
              name: tag.name
            })
          })
        )
        .pipe(orUnavailable)
      return id
    })

    const update = Effect.fn("Tags.update")(
      (target: TagTarget, fields: TagChange, owner: RowOwner, scope: RowScope, actor: string) =>
        change<InvalidRequest>(target, owner, scope, (row) =>
          Effect.gen(function* () {
            yield* sql`UPDATE public.tags SET name = ${fields.name ?? row.name}, color = ${fields.color ?? row.color},
              description = ${fields.description ?? row.description}, updated_at = ${now()} WHERE id = ${row.id}`.pipe(
              Effect.catchIf(
                (error) => error.reason._tag === "UniqueViolation",
                () => Effect.fail(nameTaken)
              )
            )
            yield* audit("tag.updated", row, actor, { changed: { ...fields } })
          })
        )
    )

    const remove = Effect.fn("Tags.remove")((target: TagTarget, owner: RowOwner, scope: RowScope, actor: string) =>
      change<never>(target, owner, scope, (row) =>
        Effect.andThen(
          sql`DELETE FROM public.tags WHERE id = ${row.id}`,
          audit("tag.deleted", row, actor, { name: row.name })
        )
      )
    )

    const list = Effect.fn("Tags.list")((scope: RowScope) =>
      sql<TagRow>`SELECT id, tenant, organization_id, name, color, description, created_at FROM public.tags
        WHERE ${rowsWithin(sql, scope)} ORDER BY created_at DESC, id DESC LIMIT 10000`.pipe(
        Effect.map((rows) =>
          rows.map((row) => ({
            id: row.id,
            name: row.name,
            color: row.color,
            description: row.description,
            createdAt: row.created_at.getTime()
          }))
        ),
        orUnavailable
      )
    )

    return Tags.of({ create, update, remove, list })
  })
)
