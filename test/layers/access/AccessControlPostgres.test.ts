import { assert, describe, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import type { AdministratorPrincipal, DeveloperPrincipal, Principal } from "#domain/principal.ts"
import { masterKeyPrincipal } from "#domain/principal.ts"
import * as AccessControlPostgres from "#layers/access/AccessControlPostgres.ts"
import * as GroupDirectoryPostgres from "#layers/access/GroupDirectoryPostgres.ts"
import { AccessControl } from "#services/access/AccessControl.ts"
import { GroupDirectory } from "#services/access/GroupDirectory.ts"
import { Provenance } from "#services/provenance/Provenance.ts"
import { administrationBase } from "#test/support/administration.ts"

const administrator = (fields: Partial<AdministratorPrincipal>): AdministratorPrincipal => ({
  _tag: "Administrator",
  subject: "ann",
  class: "tenant",
  role: "viewer",
  tenant: "acme",
  organizationId: undefined,
  entitlements: new Set(),
  ...fields
})

const developer = (userId: string, tenant = "acme"): DeveloperPrincipal => ({ _tag: "Developer", userId, tenant })

const group = Effect.fnUntraced(function* (name: string, tenant: string, members: ReadonlyArray<string>) {
  const groups = yield* GroupDirectory
  const { id } = yield* groups.create({ tenant, name, catalog: "default", actor: "master_key" })
  for (const member of members) yield* groups.addMember(id, member, undefined, "master_key")
  const grant = (privilege: string, objectId: string, of = "") =>
    groups.grant(id, { privilege, objectType: "vector_table", objectId, tenant: of }, undefined, "master_key")
  const revoke = (privilege: string, objectId: string, of = "") =>
    groups.revoke(id, { privilege, objectType: "vector_table", objectId, tenant: of }, undefined, "master_key")
  return { id, grant, revoke }
})

const may = (principal: Principal, privilege: string, objectId: string, tenant = "acme") =>
  Effect.flatMap(AccessControl, (access) => access.allows(principal, privilege, "vector_table", objectId, tenant))

const isTrue = Effect.map((held: boolean) => assert.isTrue(held))
const isFalse = Effect.map((held: boolean) => assert.isFalse(held))

describe("access control", () => {
  layer(
    Layer.mergeAll(AccessControlPostgres.layer, GroupDirectoryPostgres.layer).pipe(
      Layer.provideMerge(administrationBase())
    )
  )((it) => {
    it.effect("lets grants decide, exactly, until they are revoked", () =>
      Effect.gen(function* () {
        const readers = yield* group("readers", "acme", ["user:kim"])
        const kim = developer("kim")
        yield* isFalse(may(kim, "read", "docs"))
        yield* readers.grant("read", "docs")
        yield* isTrue(may(kim, "read", "docs"))
        yield* isFalse(may(kim, "write", "docs"))
        yield* isFalse(may(kim, "read", "other"))
        yield* isFalse(may(kim, "read", ""))
        yield* isFalse(may(developer("lee"), "read", "docs"))
        const access = yield* AccessControl
        yield* isFalse(access.allows(kim, "read", "ai_asset", "docs", "acme"))
        assert.deepStrictEqual(yield* access.granted(kim, "read", "vector_table", "acme"), new Set(["docs"]))
        assert.deepStrictEqual(yield* access.granted(kim, "write", "vector_table", "acme"), new Set())
        yield* readers.revoke("read", "docs")
        yield* isFalse(may(kim, "read", "docs"))
      })
    )

    it.effect("knows grants on every object, and the privilege that is all", () =>
      Effect.gen(function* () {
        const owners = yield* group("owners", "acme", ["bare"])
        const bare = administrator({ subject: "bare" })
        yield* owners.grant("all", "")
        yield* isTrue(may(bare, "read", "docs"))
        yield* isTrue(may(bare, "manage", ""))
        const access = yield* AccessControl
        assert.strictEqual(yield* access.granted(bare, "read", "vector_table", "acme"), "all")
        // A key cannot be mistaken for a user of the same name, nor a user for a key.
        yield* isFalse(may(administrator({ subject: "key:bare" }), "read", "docs"))
      })
    )

    it.effect("opens nothing to a namesake in another tenant, nor through a foreign group", () =>
      Effect.gen(function* () {
        const acme = yield* group("shared", "acme", ["user:pat"])
        yield* acme.grant("read", "docs")
        yield* isTrue(may(developer("pat"), "read", "docs"))
        yield* isFalse(may(developer("pat", "globex"), "read", "docs"))
        yield* isFalse(may(developer("pat", "globex"), "read", "docs", "globex"))
        yield* isFalse(may(developer("pat"), "read", "docs", "globex"))
        // The instance's own groups may reach into a tenant, where the grant names it.
        const instance = yield* group("auditors", "", ["user:eve"])
        yield* instance.grant("read", "docs", "globex")
        yield* isTrue(may(developer("eve"), "read", "docs", "globex"))
        yield* isFalse(may(developer("eve"), "read", "docs", "acme"))
        const groups = yield* GroupDirectory
        const refused = yield* Effect.flip(
          groups.grant(
            acme.id,
            { privilege: "read", objectType: "t", objectId: "", tenant: "globex" },
            "acme",
            "user:ann"
          )
        )
        assert.deepInclude({ ...refused }, { code: "tenant_override_forbidden" })
      })
    )

    it.effect("lets administrators do what is theirs to do", () =>
      Effect.gen(function* () {
        yield* isTrue(may(masterKeyPrincipal, "read", "any", "globex"))
        yield* isTrue(may(administrator({ class: "control_plane", role: "instance_admin" }), "read", "any", "globex"))
        yield* isTrue(may(administrator({ role: "tenant_admin" }), "read", "any"))
        yield* isFalse(may(administrator({ role: "tenant_admin" }), "read", "any", "globex"))
        yield* isFalse(may(administrator({ role: "viewer" }), "read", "any"))
        yield* isFalse(may(administrator({ role: "org_admin", organizationId: "o" }), "read", "any"))
      })
    )

    it.effect("forgets what hung on a group that is gone, and keeps the chain whole", () =>
      Effect.gen(function* () {
        const groups = yield* GroupDirectory
        const gone = yield* group("gone", "acme", ["user:zoe"])
        yield* gone.grant("read", "docs")
        yield* Effect.all([groups.remove(gone.id, "acme", "user:ann"), groups.list("acme")], { concurrency: 2 })
        yield* isFalse(may(developer("zoe"), "read", "docs"))
        const provenance = yield* Provenance
        assert.isUndefined((yield* provenance.verify("acme")).broken)
      })
    )
  })
})
