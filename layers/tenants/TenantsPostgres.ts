import { Effect, Layer } from "effect"
import { tenantNotProvisioned } from "#domain/errors.ts"
import { publicTenant } from "#domain/principal.ts"
import type { DatabaseStartError } from "#services/storage/DatabaseServer.ts"
import { Migrations } from "#services/storage/Migrations.ts"
import { Tenants } from "#services/tenants/Tenants.ts"

/** The unquoted schema of a slug. The prefix keeps a tenant from being called `public` or `pg_catalog`. */
export const tenantSchema = (slug: string): string => `tenant_${slug}`

/**
 * Makes and migrates a schema for each slug, and always `public`, which holds the rows of the empty tenant. Fails at
 * start when that cannot be done, so that no tenant is served without its tables.
 */
export const layer = (slugs: ReadonlyArray<string>): Layer.Layer<Tenants, DatabaseStartError, Migrations> =>
  Layer.effect(
    Tenants,
    Effect.gen(function* () {
      const migrations = yield* Migrations
      const sorted = [...new Set(slugs)].sort()
      yield* migrations.migrate(["public", ...sorted.map(tenantSchema)])
      const dormant = sorted.length === 0
      const schemas = new Map(sorted.map((slug) => [slug, Effect.succeed(`"${tenantSchema(slug)}"`)]))
      const publicSchema = Effect.succeed("public")
      return Tenants.of({
        slugs: sorted,
        dormant,
        schemaOf: (tenant) =>
          dormant || tenant === publicTenant
            ? publicSchema
            : (schemas.get(tenant) ?? Effect.die(tenantNotProvisioned(tenant)))
      })
    })
  )
