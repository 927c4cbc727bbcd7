import { Clock, Effect, Layer } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import type { Grant, Group } from "#domain/access.ts"
import { Conflict, notFound, PermissionDenied } from "#domain/errors.ts"
import { isUuid, uuidv7 } from "#domain/ids.ts"
import type { JsonObject } from "#domain/json.ts"
import { GroupDirectory, type GroupScope } from "#services/access/GroupDirectory.ts"
import { makeAudit } from "#services/provenance/audit.ts"
import type { Provenance } from "#services/provenance/Provenance.ts"
import { orUnavailable } from "#services/storage/outage.ts"
import { Tenants } from "#services/tenants/Tenants.ts"

interface GroupRow {
  readonly id: string
  readonly tenant: string
  readonly name: string
  readonly catalog: string
  readonly role_id: string
  readonly role_name: string
  readonly created_by: string
  readonly created_at: Date
}

interface GrantRow {
  readonly privilege: string
  readonly object_type: string
  readonly object_id: string
  readonly tenant: string
}

const nameTaken = new Conflict({
  code: "already_exists",
  message: "A group or catalog role of this name exists.",
  param: "name"
})

const noSuchGroup = new PermissionDenied({
  code: "insufficient_permissions",
  message: "This caller has no such group."
})

const foreignTenant = new PermissionDenied({
  code: "tenant_override_forbidden",
  message: "Privileges can be granted in the caller's own tenant only.",
  param: "tenant"
})

const groupOf = (row: GroupRow): Group => ({
  id: row.id,
  tenant: row.tenant,
  name: row.name,
  catalogRole: { id: row.role_id, name: row.role_name, catalog: row.catalog },
  createdBy: row.created_by,
  createdAt: row.created_at.getTime()
})

const payloadOf = (grant: Grant): JsonObject => ({
  object_id: grant.objectId,
  object_type: grant.objectType,
  privilege: grant.privilege,
  tenant: grant.tenant
})

/** Groups in `public`. Every change locks its group, so that a group and what hangs on it never part. */
export const layer: Layer.Layer<GroupDirectory, never, SqlClient.SqlClient | Provenance | Tenants> = Layer.effect(
  GroupDirectory,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const tenants = yield* Tenants
    const clock = yield* Clock.Clock
    const audit = yield* makeAudit
    const now = () => new Date(clock.currentTimeMillisUnsafe())

    const select = sql`SELECT g.id, g.tenant, g.name, r.catalog, r.id AS role_id, r.name AS role_name, g.created_by,
      g.created_at FROM public.groups g JOIN public.catalog_roles r ON r.group_id = g.id`

    const within = (scope: GroupScope) => (scope === undefined ? sql`true` : sql`g.tenant = ${scope}`)

    const one = (id: string, scope: GroupScope, lock: "" | "FOR UPDATE OF g" | "FOR NO KEY UPDATE OF g") =>
      isUuid(id)
        ? Effect.map(
            sql<GroupRow>`${select} WHERE g.id = ${id} AND ${within(scope)} ${sql.literal(lock)}`,
            ([row]) => row
          )
        : Effect.succeed(undefined)

    /** Runs inside a transaction that holds the group; `changed` says whether there is something to audit. */
    const change = <E>(
      id: string,
      scope: GroupScope,
      absent: E,
      run: (
        row: GroupRow
      ) => Effect.Effect<
        { readonly action: string; readonly actor: string; readonly payload: JsonObject; readonly changed: boolean },
        E | SqlError.SqlError
      >
    ) =>
      sql
        .withTransaction(
          Effect.gen(function* () {
            const row = yield* one(id, scope, "FOR NO KEY UPDATE OF g")
            if (row === undefined) return yield* Effect.fail(absent)
            const { action, actor, changed, payload } = yield* run(row)
            if (!changed) return
            yield* audit({
              tenant: row.tenant,
              action,
              actor,
              resourceType: "group",
              resourceId: row.id,
              payload
            })
          })
        )
        .pipe(orUnavailable)

    const create = Effect.fn("GroupDirectory.create")(function* (group: {
      readonly tenant: string
      readonly name: string
      readonly catalog: string
      readonly actor: string
    }) {
      const at = now()
      const row: GroupRow = {
        id: uuidv7(at.getTime()),
        tenant: group.tenant,
        name: group.name,
        catalog: group.catalog,
        role_id: uuidv7(at.getTime()),
        role_name: group.name,
        created_by: group.actor,
        created_at: at
      }
      return yield* sql
        .withTransaction(
          Effect.gen(function* () {
            const made = yield* sql`INSERT INTO public.groups (id, tenant, name, catalog, created_by, created_at)
              VALUES (${row.id}, ${row.tenant}, ${row.name}, ${row.catalog}, ${row.created_by}, ${at})
              ON CONFLICT DO NOTHING RETURNING id`
            if (made.length === 0) return yield* nameTaken
            const role = yield* sql`INSERT INTO public.catalog_roles (id, group_id, tenant, catalog, name)
              VALUES (${row.role_id}, ${row.id}, ${row.tenant}, ${row.catalog}, ${row.role_name})
              ON CONFLICT DO NOTHING RETURNING id`
            if (role.length === 0) return yield* nameTaken
            yield* audit({
              tenant: row.tenant,
              action: "group.created",
              actor: group.actor,
              resourceType: "group",
              resourceId: row.id,
              payload: { catalog: row.catalog, catalog_role_id: row.role_id, name: row.name }
            })
            return groupOf(row)
          })
        )
        .pipe(orUnavailable)
    })

    const remove = Effect.fn("GroupDirectory.remove")(function* (id: string, scope: GroupScope, actor: string) {
      yield* change(id, scope, notFound("group"), (row) =>
        Effect.as(sql`DELETE FROM public.groups WHERE id = ${row.id}`, {
          action: "group.deleted",
          actor,
          payload: { name: row.name },
          changed: true
        })
      )
    })

    const find = Effect.fn("GroupDirectory.find")(function* (id: string, scope: GroupScope) {
      const row = yield* one(id, scope, "").pipe(orUnavailable)
      if (row === undefined) return yield* notFound("group")
      const grants = yield* sql<GrantRow>`SELECT privilege, object_type, object_id, tenant
        FROM public.catalog_role_grants WHERE role_id = ${row.role_id}
        ORDER BY object_type, object_id, privilege, tenant`.pipe(orUnavailable)
      return {
        group: groupOf(row),
        grants: grants.map((grant) => ({
          privilege: grant.privilege,
          objectType: grant.object_type,
          objectId: grant.object_id,
          tenant: grant.tenant
        }))
      }
    })

    const list = Effect.fn("GroupDirectory.list")((scope: GroupScope) =>
      sql<GroupRow>`${select} WHERE ${within(scope)} ORDER BY g.created_at DESC, g.id DESC LIMIT 10000`.pipe(
        Effect.map((rows) => rows.map(groupOf)),
        orUnavailable
      )
    )

    const members = Effect.fn("GroupDirectory.members")(function* (id: string, scope: GroupScope) {
      const row = yield* one(id, scope, "").pipe(orUnavailable)
      if (row === undefined) return yield* noSuchGroup
      const rows = yield* sql<{ principal_id: string }>`SELECT principal_id FROM public.group_members
        WHERE group_id = ${row.id} ORDER BY principal_id`.pipe(orUnavailable)
      return rows.map(({ principal_id }) => principal_id)
    })

    const addMember = Effect.fn("GroupDirectory.addMember")(
      (id: string, principal: string, scope: GroupScope, actor: string) =>
        change(id, scope, noSuchGroup, (row) =>
          Effect.map(
            sql`INSERT INTO public.group_members (group_id, principal_id, added_by, added_at)
              VALUES (${row.id}, ${principal}, ${actor}, ${now()}) ON CONFLICT DO NOTHING RETURNING group_id`,
            (rows) => ({
              action: "group.member_added",
              actor,
              payload: { principal_id: principal },
              changed: rows.length > 0
            })
          )
        )
    )

    const removeMember = Effect.fn("GroupDirectory.removeMember")(
      (id: string, principal: string, scope: GroupScope, actor: string) =>
        change(id, scope, noSuchGroup, (row) =>
          Effect.map(
            sql`DELETE FROM public.group_members WHERE group_id = ${row.id} AND principal_id = ${principal}
              RETURNING group_id`,
            (rows) => ({
              action: "group.member_removed",
              actor,
              payload: { principal_id: principal },
              changed: rows.length > 0
            })
          )
        )
    )

    /** A tenant may be named by those alone who administer it, and only one that there is. */
    const mayName = (tenant: string, row: GroupRow, scope: GroupScope): boolean =>
      tenant === "" ||
      (scope === undefined
        ? tenants.dormant || tenants.slugs.includes(tenant)
        : tenant === scope && tenant === row.tenant)

    const grant = Effect.fn("GroupDirectory.grant")((id: string, granted: Grant, scope: GroupScope, actor: string) =>
      change<ReturnType<typeof notFound> | PermissionDenied>(id, scope, notFound("group"), (row) =>
        Effect.gen(function* () {
          if (!mayName(granted.tenant, row, scope)) return yield* foreignTenant
          const rows = yield* sql`INSERT INTO public.catalog_role_grants
              (role_id, privilege, object_type, object_id, tenant, granted_by, granted_at)
            VALUES (${row.role_id}, ${granted.privilege}, ${granted.objectType}, ${granted.objectId}, ${granted.tenant},
              ${actor}, ${now()}) ON CONFLICT DO NOTHING RETURNING role_id`
          return { action: "group.permission_granted", actor, payload: payloadOf(granted), changed: rows.length > 0 }
        })
      )
    )

    const revoke = Effect.fn("GroupDirectory.revoke")((id: string, revoked: Grant, scope: GroupScope, actor: string) =>
      change<ReturnType<typeof notFound> | PermissionDenied>(id, scope, notFound("group"), (row) =>
        Effect.map(
          sql`DELETE FROM public.catalog_role_grants
            WHERE role_id = ${row.role_id} AND privilege = ${revoked.privilege} AND object_type = ${revoked.objectType}
              AND object_id = ${revoked.objectId} AND tenant = ${revoked.tenant} RETURNING role_id`,
          (rows) => ({
            action: "group.permission_revoked",
            actor,
            payload: payloadOf(revoked),
            changed: rows.length > 0
          })
        )
      )
    )

    return GroupDirectory.of({ create, list, find, remove, members, addMember, removeMember, grant, revoke })
  })
)
