import { Effect, Layer, type Redacted } from "effect"
import type { KeyDraft } from "#domain/keys.ts"
import * as KeyStorePostgres from "#layers/keys/KeyStorePostgres.ts"
import * as ProvenancePostgres from "#layers/provenance/ProvenancePostgres.ts"
import * as ChangeFeedPostgres from "#layers/storage/ChangeFeedPostgres.ts"
import * as DatabasePostgres from "#layers/storage/DatabasePostgres.ts"
import { DatabaseServer } from "#services/storage/DatabaseServer.ts"
import { Tenants } from "#services/tenants/Tenants.ts"

/** No tenants: every row lies in `public`. */
export const dormantTenants = Layer.succeed(Tenants, {
  slugs: [],
  dormant: true,
  schemaOf: () => Effect.succeed("public")
})

export const provenance = ProvenancePostgres.layer.pipe(Layer.provide(dormantTenants))

const at = (url: Redacted.Redacted<string>) =>
  Layer.succeed(DatabaseServer, { url, kind: "external", state: Effect.succeed("ready" as const) })

/** What one process has of the database: a pool and a feed, by ways of their own where the test wants that. */
export const processOn = (database: Redacted.Redacted<string>, feed: Redacted.Redacted<string> = database) => {
  const pool = DatabasePostgres.layer({ poolSize: 3, connectTimeout: "1 second" }).pipe(Layer.provide(at(database)))
  return Layer.fresh(ChangeFeedPostgres.layer.pipe(Layer.provide(at(feed)), Layer.provideMerge(pool), Layer.orDie))
}

/** A whole process with keys: `KeyStore` and what is below it. */
export const keyProcess = (database: Redacted.Redacted<string>, feed?: Redacted.Redacted<string>) =>
  KeyStorePostgres.layer().pipe(
    Layer.provide(dormantTenants),
    Layer.provideMerge(provenance),
    Layer.provideMerge(processOn(database, feed))
  )

export const draft: KeyDraft = {
  tenant: "",
  keyName: null,
  keyAlias: null,
  userId: null,
  teamId: null,
  organizationId: null,
  maxBudget: null,
  models: [],
  rpmLimit: null,
  tpmLimit: null,
  expires: null,
  metadata: {},
  actor: "master_key"
}

export const everything = { tenant: undefined, organizationId: undefined }
